// What runs again in a backward pass, and where the recorder is told so.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/engine/model/record_model.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

using Strings = std::vector<std::string>;

/// Notes the pieces, and what is done under recomputation.
class RecomputeRecorder final : public Recorder {
 public:
  void EnterPiece(const PieceRecord& piece) override {
    piece_ = piece;
    const std::string layer =
        piece.kind == PieceKind::kLayer ? fmt::format(" {}", piece.layer) : "";
    pieces.push_back(fmt::format("{}{} {}", Name(piece.kind), layer, Name(piece.pass)));
  }
  void BeginOp(const OpRecord& op) override { Note(Name(op.kind)); }
  void BeginComm(const CommRecord& message) override { Note(Name(message.kind)); }
  void BeginWait(const CommRecord& /*message*/) override {}
  void End() override {}

  Strings pieces;
  Strings recomputed;

 private:
  void Note(std::string_view name) {
    if (piece_.pass == PassKind::kRecompute) recomputed.emplace_back(name);
  }

  PieceRecord piece_;
};

/// What a dry backward pass of a small GPT-2 of `layers` layers reports.
RecomputeRecorder Backward(
    const std::string& plan, int64_t layers, const std::string& layout,
    const std::function<void(RunConfig&)>& change = [](RunConfig&) {}) {
  RunConfig run = SmallRun(/*llama=*/false);
  change(run);
  run.model.num_layers = layers;
  run.layout = ParseLayout(fmt::format("recompute={},{}", plan, layout), 0);
  RecomputeRecorder recorder;
  RecordModel(run, /*forward=*/nullptr, &recorder);
  return recorder;
}

Strings Recomputed(const std::string& plan, const std::string& layout = "mbs=1") {
  return Backward(plan, 1, layout).recomputed;
}

TEST(Recompute, RunsNoMoreThanWhatIsMissing) {
  EXPECT_EQ(Recomputed("none"), Strings());
  EXPECT_EQ(Recomputed("selective"), Strings{"attention_forward"});
  EXPECT_EQ(Recomputed("selective:layernorm"),
            (Strings{"layer_norm_forward", "layer_norm_forward"}));
  EXPECT_EQ(Recomputed("selective:mlp_act"), Strings{"activation_forward"});
  const Strings mlp = {"layer_norm_forward", "gemm"};
  EXPECT_EQ(Recomputed("selective:mlp"), mlp);
  EXPECT_EQ(Recomputed("selective:mlp_act+mlp"), mlp);
  // Of norms after the sums the first is made again; the other's result is the next layer's input.
  const auto post_norm = [](RunConfig& run) { run.model.block = BlockKind::kPostNorm; };
  EXPECT_EQ(Backward("selective:layernorm", 1, "mbs=1", post_norm).recomputed,
            Strings{"layer_norm_forward"});
  // Norms after attention and MLP alone: what these take is the stream, which is kept.
  const auto reordered = [](RunConfig& run) { run.model.block = BlockKind::kReorderedNorm; };
  EXPECT_EQ(Backward("selective:layernorm", 1, "mbs=1", reordered).recomputed, Strings());
  EXPECT_EQ(Backward("selective:mlp", 1, "mbs=1", reordered).recomputed, Strings{"gemm"});
  const Strings logits = {"gemm", "cross_entropy"};
  EXPECT_EQ(Recomputed("selective:logits"), logits);

  Strings every = logits;
  every.insert(every.end(), mlp.begin(), mlp.end());
  every.insert(every.end(), {"layer_norm_forward", "attention_forward"});
  EXPECT_EQ(Recomputed("selective:core_attn+layernorm+mlp_act+mlp+logits"), every);
  EXPECT_EQ(Recomputed("full"), (Strings{"layer_norm_forward", "gemm", "attention_forward", "gemm",
                                         "layer_norm_forward", "gemm", "gemm"}));
}

// The products whose results are summed over the ranks do not run again.
TEST(Recompute, OfModulesSendsOnlyWhatSequenceParallelismGathers) {
  EXPECT_EQ(Recomputed("selective:mlp", "tp=2"), (Strings{"layer_norm_forward", "gemm"}));
  EXPECT_EQ(Recomputed("selective:mlp", "tp=2,sp=1"),
            (Strings{"layer_norm_forward", "all_gather", "gemm"}));
  EXPECT_EQ(Recomputed("selective:mlp", "tp=2,sp=1,tp_overlap_chunks=2").back(),
            "activation_forward")
      << "of what products in chunks have made";
  EXPECT_EQ(Recomputed("selective:core_attn+layernorm+mlp_act", "tp=2,sp=1"),
            (Strings{"layer_norm_forward", "activation_forward", "layer_norm_forward",
                     "attention_forward"}));
}

TEST(Recompute, OfModulesLiesWithinItsPiece) {
  EXPECT_EQ(
      Backward("selective", 2, "mbs=1").pieces,
      (Strings{"head backward", "layer 1 backward", "layer 1 recompute", "layer 1 backward",
               "layer 0 backward", "layer 0 recompute", "layer 0 backward", "embedding backward"}));
  EXPECT_EQ(Backward("selective:logits", 1, "mbs=1").pieces,
            (Strings{"head backward", "head recompute", "head backward", "layer 0 backward",
                     "embedding backward"}));
}

// What a layer does before it runs again, its weights being gathered, belongs to its backward pass.
TEST(Recompute, OfLayersRunsGroupByGroup) {
  EXPECT_EQ(
      Backward("full:uniform:2", 3, "mbs=1").pieces,
      (Strings{"head backward", "layer 2 backward", "layer 2 recompute", "layer 2 backward",
               "layer 0 backward", "layer 0 recompute", "layer 1 backward", "layer 1 recompute",
               "layer 1 backward", "layer 0 backward", "embedding backward"}));
  EXPECT_EQ(Backward("full:block:1", 2, "mbs=1").pieces,
            (Strings{"head backward", "layer 1 backward", "layer 0 backward", "layer 0 recompute",
                     "layer 0 backward", "embedding backward"}));
}

}  // namespace
}  // namespace trimtab
