// More tensor-parallel ranks than key/value heads: each head is held by several of them. Such
// layouts train to the losses and the gradient norm of one rank, in the memory of the dry run, and
// a checkpoint holds each head once.
#include <fmt/format.h>

#include "engine/checkpoint/checkpoint.h"
#include "engine/config/rules/rules.h"
#include "engine/runtime/ranks.h"
#include "engine/runtime/whole_model.h"
#include "engine/train/checkpointing.h"
#include "engine/train/run_training.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 5;
constexpr double kTolerance = 1e-5;  // relative; fp32 sums in another order

/// Eight heads over so many of key and value; of GPT-2 with biases, of Llama with norms of heads,
/// of OLMo with norms over all of them.
enum class Family { kGpt2, kLlama, kOlmo };

RunConfig RunOf(Family family, int64_t kv_heads, const std::string& layout) {
  RunConfig run = SmallRun(/*llama=*/family != Family::kGpt2);
  run.model.num_heads = 8;
  run.model.num_kv_heads = kv_heads;
  run.model.query_key_norm = family != Family::kGpt2;
  run.model.query_key_norm_whole = family == Family::kOlmo;
  run.layout = ParseLayout(layout, 0);
  return run;
}

using Case = std::tuple<Family, int64_t, const char*>;

class KvCopiesTest : public testing::TestWithParam<Case> {};

TEST_P(KvCopiesTest, TrainLikeOneRankInTheMemoryOfTheDryRun) {
  const auto& [family, kv_heads, layout] = GetParam();
  const RunConfig run = RunOf(family, kv_heads, layout);
  const Rule* broken = FirstBrokenRule(run);
  ASSERT_EQ(broken, nullptr) << broken->message(run);
  const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
  const TrainedLosses expected = TrainOnRanks(RunOf(family, kv_heads, "mbs=2"), *source, kSteps);
  const TrainedLosses actual = TrainOnRanks(run, *source, kSteps);
  ExpectSameTraining(actual, expected, kTolerance);
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(actual.grad_norms[step], expected.grad_norms[step],
                100 * kTolerance * expected.grad_norms[step]);
  }
  EXPECT_EQ(actual.peak_bytes, DryRunPeaks(run, *source));
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  static constexpr const char* kNames[] = {"gpt2", "llama", "olmo"};
  const auto& [family, kv_heads, layout] = info.param;
  std::string name = fmt::format("{}_{}_{}", kNames[static_cast<size_t>(family)], kv_heads, layout);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, KvCopiesTest,
    testing::Combine(testing::Values(Family::kGpt2, Family::kLlama, Family::kOlmo),
                     testing::Values(1, 2),
                     testing::Values("tp=4,mbs=4", "tp=4,sp=1,mbs=2", "tp=8,mbs=4",
                                     "tp=4,sp=1,dp=2,zero=1,mbs=2", "tp=4,sp=1,dp=2,zero=2,mbs=2",
                                     "tp=4,dp=2,zero=3,mbs=1", "tp=4,dp=4,zero=3,shard=2,mbs=1",
                                     "tp=4,pp=2,dp=2,zero=2,schedule=zero-bubble,mbs=2",
                                     "tp=4,dp=2,zero=1,overlap_grad_reduce=0,mbs=1",
                                     "tp=4,pp=2,schedule=zero-bubble,mbs=2", "tp=4,sp=1,cp=2,mbs=2",
                                     "tp=4,sp=1,tp_overlap_chunks=2,mbs=2",
                                     "tp=4,sp=1,mbs=2,recompute=selective:core_attn+layernorm")),
    CaseName);

// Every rank that writes a part writes what nobody else does: the sizes add up to those of one
// rank, and the files are the same bytes.
TEST(KvCopiesCheckpoint, HoldsEachHeadOnce) {
  const int64_t kv_heads = 2;
  const std::string folder = ScratchFolder();
  const auto save = [&](const char* layout, const char* name, const char* from) {
    const RunConfig run = RunOf(Family::kGpt2, kv_heads, layout);
    const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
    const WholeModelDeclaration whole = DeclareWholeModel(run.model);
    CheckpointHeader header = {.run = run};
    CheckpointWriter writer(folder + "/" + name, header,
                            StoredParameters(header.run, whole.parameters));
    std::optional<CheckpointReader> reader;
    if (from != nullptr) reader.emplace(folder + "/" + from);
    RunRanks(run, [&](Rank& rank) {
      Trainer trainer(run, rank.parallel(), rank.device());
      if (reader) {
        ReadState(trainer, *reader);
      } else {
        trainer.Step(*source, 0);
      }
      WriteState(trainer, writer);
    });
    writer.Finish();
  };
  save("tp=4,dp=2,zero=1,mbs=1", "first", nullptr);
  save("mbs=2", "one_rank", "first");
  save("tp=8,sp=1,mbs=2", "eight", "one_rank");
  for (const char* file : {"weights.safetensors", "optimizer.safetensors"}) {
    const std::string expected = ReadBytes(folder + "/first/" + file);
    EXPECT_GT(expected.size(), 1000u) << file;
    EXPECT_TRUE(ReadBytes(folder + "/one_rank/" + file) == expected) << file;
    EXPECT_TRUE(ReadBytes(folder + "/eight/" + file) == expected) << file;
  }
}

// Ranks that hold the same head round its moments alike, though what stands before it in their
// shards differs: so a checkpoint, which has them once, is what each rank had.
TEST(KvCopiesCheckpoint, KeepsScaledMoments) {
  const std::string folder = ScratchFolder();
  for (const char* layout : {"tp=4,sp=1,mbs=4,precision=fp16,moments=fp16",
                             "tp=4,dp=2,zero=1,mbs=2,precision=fp16,moments=fp16"}) {
    RunConfig run = RunOf(Family::kGpt2, /*kv_heads=*/1, layout);
    std::vector<double> losses[2];
    const auto train = [&](size_t which, int64_t until, TrainingOptions options) {
      int64_t done = 0;
      options.on_step = [&](const TrainingStep& step) {
        losses[which].push_back(step.loss);
        done = step.step;
      };
      options.stop_requested = [&] {
        return done < until ? StopSignal::kNone : StopSignal::kDrain;
      };
      RunTraining(run, options);
    };
    train(0, run.steps, {.checkpoint = folder + "/whole"});
    train(1, 5, {.checkpoint = folder + "/parts"});
    train(1, run.steps, {.load = folder + "/parts", .checkpoint = folder + "/parts"});
    EXPECT_EQ(losses[1], losses[0]) << layout;
    for (const char* file : {"/weights.safetensors", "/optimizer.safetensors"}) {
      EXPECT_TRUE(ReadBytes(folder + "/parts" + file) == ReadBytes(folder + "/whole" + file))
          << layout << file;
    }
    std::filesystem::remove_all(folder + "/parts");
  }
}

}  // namespace
}  // namespace trimtab
