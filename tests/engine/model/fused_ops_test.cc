// Passes over memory that a micro batch does not take: residuals, activations and the loss are made
// while the values are at hand. Counted on the meta device.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "engine/ops/attention/attention.h"
#include "tests/engine/model/record_model.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

class OpRecorder final : public Recorder {
 public:
  void BeginOp(const OpRecord& op) override { ops.push_back(op); }
  void BeginComm(const CommRecord&) override {}
  void BeginWait(const CommRecord&) override {}
  void End() override {}

  int64_t Count(OpKind kind) const {
    return std::count_if(ops.begin(), ops.end(),
                         [kind](const OpRecord& op) { return op.kind == kind; });
  }
  /// Traffic of all ops of these kinds.
  int64_t Bytes(std::initializer_list<OpKind> kinds) const {
    int64_t bytes = 0;
    for (const OpRecord& op : ops) {
      if (std::ranges::find(kinds, op.kind) != kinds.end()) bytes += op.bytes;
    }
    return bytes;
  }
  /// Traffic of ops that others have taken in, by what they were.
  std::map<OpKind, int64_t> Fused() const {
    std::map<OpKind, int64_t> bytes;
    for (const OpRecord& op : ops) {
      if (op.fused.bytes > 0) bytes[op.fused.kind] += op.fused.bytes;
    }
    return bytes;
  }

  std::vector<OpRecord> ops;
};

/// What a micro batch of `run` reports, forward and backward.
OpRecorder Record(RunConfig run, const std::string& layout) {
  run.layout = ParseLayout(layout, 0);
  OpRecorder recorder;
  RecordModel(run, &recorder, &recorder);
  return recorder;
}

/// Bytes of one matrix of `columns` in fp32, of all layers.
int64_t Matrices(const RunConfig& run, int64_t columns) {
  return run.model.num_layers * run.sequence_length * columns * SizeOf(DType::kF32);
}

/// Of the logits, whose vocabulary is padded.
int64_t LogitBytes(const RunConfig& run) {
  return run.sequence_length * run.model.padded_vocab_size(/*tp=*/1) * SizeOf(DType::kF32);
}

/// Of the gradients of all biases of GPT-2's linear layers: each reads what is as wide as it.
int64_t BiasBackwardBytes(const RunConfig& run) {
  const int64_t widths = 5 * run.model.hidden_size + run.model.ffn_hidden_size;
  return Matrices(run, widths) + run.model.num_layers * widths * SizeOf(DType::kF32);
}

TEST(FusedOps, OfGpt2AreResidualsActivationsBiasesAndTheLoss) {
  const RunConfig run = SmallRun(/*llama=*/false);
  const OpRecorder recorder = Record(run, "mbs=1");
  // Two residuals of three passes each.
  EXPECT_EQ(recorder.Fused(),
            (std::map<OpKind, int64_t>{{OpKind::kAdd, 2 * 3 * Matrices(run, run.model.hidden_size)},
                                       {OpKind::kBiasBackward, BiasBackwardBytes(run)},
                                       {OpKind::kActivationForward, 2 * Matrices(run, 128)},
                                       {OpKind::kActivationBackward, 3 * Matrices(run, 128)},
                                       {OpKind::kCrossEntropyParts, 2 * LogitBytes(run)}}));
  for (const OpKind kind :
       {OpKind::kAdd, OpKind::kBiasBackward, OpKind::kActivationForward,
        OpKind::kActivationBackward, OpKind::kCrossEntropyParts, OpKind::kCrossEntropyGrad}) {
    EXPECT_EQ(recorder.Count(kind), 0) << Name(kind);
  }
}

TEST(FusedOps, OfLlamaAreResidualsAndTheLoss) {
  const RunConfig run = SmallRun(/*llama=*/true);
  EXPECT_EQ(Record(run, "mbs=1").Fused(),
            (std::map<OpKind, int64_t>{{OpKind::kAdd, 2 * 3 * Matrices(run, run.model.hidden_size)},
                                       {OpKind::kCrossEntropyParts, 2 * LogitBytes(run)}}));
}

TEST(FusedOps, OfBlocksSideBySideAreBothResiduals) {
  RunConfig run = SmallRun(/*llama=*/false);
  run.model.block = BlockKind::kParallel;
  EXPECT_EQ(Record(run, "mbs=1").Fused().at(OpKind::kAdd),
            2 * 3 * Matrices(run, run.model.hidden_size));
}

// Partial results are summed over the ranks first, and then biases are added; a norm comes between.
TEST(FusedOps, AddResidualsOnlyToWholeResults) {
  RunConfig run = SmallRun(/*llama=*/false);
  const OpRecorder split = Record(run, "tp=2,mbs=1");
  EXPECT_EQ(split.Fused().at(OpKind::kAdd), 2 * 3 * Matrices(run, run.model.hidden_size));
  EXPECT_EQ(split.Count(OpKind::kAddBias), 2 * run.model.num_layers) << "with the biases";
  const OpRecorder without_bias = Record(SmallRun(/*llama=*/true), "tp=2,mbs=1");
  EXPECT_FALSE(without_bias.Fused().contains(OpKind::kAdd));
  EXPECT_EQ(without_bias.Count(OpKind::kAdd), 2 * run.model.num_layers);
  EXPECT_EQ(split.Fused().at(OpKind::kActivationForward), 2 * Matrices(run, 64));
  EXPECT_EQ(split.Fused().at(OpKind::kCrossEntropyParts), LogitBytes(run) / 2);
  run.model.block = BlockKind::kSandwich;
  const OpRecorder normed = Record(run, "mbs=1");
  EXPECT_FALSE(normed.Fused().contains(OpKind::kAdd));
  EXPECT_EQ(normed.Count(OpKind::kAdd), 2 * run.model.num_layers);
  // Without norms before attention and MLP, their gradients are added to the stream's as well.
  run.model.block = BlockKind::kReorderedNorm;
  const OpRecorder reordered = Record(run, "mbs=1");
  EXPECT_FALSE(reordered.Fused().contains(OpKind::kAdd));
  EXPECT_EQ(reordered.Count(OpKind::kAdd), 4 * run.model.num_layers);
}

// With a bias, its gradient is summed from what has been turned back.
TEST(FusedOps, OfFp8TurnGradientsBackWhileTheyAreQuantised) {
  RunConfig run = SmallRun(/*llama=*/true);
  run.sequence_length = 16;  // products of fp8 sum over multiples of that
  const OpRecorder fused = Record(run, "mbs=1,precision=fp8");
  run.model.qkv_bias = true;
  const OpRecorder apart = Record(run, "mbs=1,precision=fp8");
  const int64_t layers = run.model.num_layers;
  EXPECT_EQ(fused.Count(OpKind::kRope), layers) << "forward";
  EXPECT_EQ(fused.Count(OpKind::kRopeBackwardFp8), layers);
  EXPECT_EQ(apart.Count(OpKind::kRope), 2 * layers);
  EXPECT_EQ(apart.Count(OpKind::kRopeBackwardFp8), 0);
  const auto quantising = {OpKind::kRope, OpKind::kQuantize, OpKind::kRopeBackwardFp8};
  const AttentionShape shape = {{1, run.sequence_length}, 4, 4, run.model.head_size()};
  EXPECT_EQ(apart.Bytes(quantising) - fused.Bytes(quantising),
            layers * RopeRecord(shape, DType::kBf16).bytes);
}

// That of the MLP comes from another layer, and is quantised on its own.
TEST(FusedOps, OfFp8QuantiseTheGradientOfAttentionInTheNormBeforeIt) {
  for (const bool llama : {false, true}) {
    RunConfig run = SmallRun(llama);
    run.sequence_length = 16;
    run.model.ffn_hidden_size = 64;
    const int64_t saved =
        QuantizeRecord(run.sequence_length, run.model.hidden_size, DType::kBf16, true, true).bytes;
    const auto quantised = [](const OpRecorder& recorder) {
      const auto fused = recorder.Fused();
      const auto found = fused.find(OpKind::kQuantize);
      return found == fused.end() ? 0 : found->second;
    };
    const OpRecorder recorder = Record(run, "mbs=1,precision=fp8");
    EXPECT_EQ(quantised(recorder), run.model.num_layers * saved);
    EXPECT_EQ(quantised(Record(run, "tp=2,sp=1,mbs=1,precision=fp8")), 0) << "it is gathered first";
    run.model.block = BlockKind::kSandwich;
    EXPECT_EQ(quantised(Record(run, "mbs=1,precision=fp8")), 0) << "another norm comes between";
  }
}

// A product writes each weight's gradient once in a first micro batch.
TEST(FusedOps, GradientsInBf16MoveHalfTheBytes) {
  RunConfig run = SmallRun(/*llama=*/true);
  run.model.tied_embeddings = false;
  const auto products = [&](const std::string& layout) {
    return Record(run, layout).Bytes({OpKind::kGemm});
  };
  const ModelConfig& model = run.model;
  const int64_t norms = (2 * model.num_layers + 1) * model.hidden_size;
  const int64_t table = model.vocab_size * model.hidden_size;
  const int64_t padding =
      (model.padded_vocab_size(/*tp=*/1) - model.vocab_size) * model.hidden_size;
  const int64_t weights = model.parameter_count() - table - norms + padding;
  EXPECT_EQ(products("mbs=1,precision=bf16") - products("mbs=1,precision=bf16,grads=bf16"),
            weights * (SizeOf(DType::kF32) - SizeOf(DType::kBf16)));
}

TEST(FusedOps, LeaveActivationsWhereProductsRunInChunks) {
  const OpRecorder chunks =
      Record(SmallRun(/*llama=*/false), "tp=2,sp=1,tp_overlap_chunks=2,mbs=1");
  EXPECT_FALSE(chunks.Fused().contains(OpKind::kActivationForward));
  EXPECT_FALSE(chunks.Fused().contains(OpKind::kActivationBackward));
}

}  // namespace
}  // namespace trimtab
