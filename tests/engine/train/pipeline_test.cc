// Pipelines of every schedule train to the losses of one rank, and take the memory the dry run
// says.
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "engine/base/error.h"
#include "engine/config/rules/rules.h"
#include "engine/runtime/ranks.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 5;
constexpr double kTolerance = 1e-5;  // relative; fp32 sums in another order

/// Six layers, twelve sequences: groups of two, three and four micro batches come out even.
RunConfig RunOf(bool llama, bool tied, const std::string& layout) {
  RunConfig run = SmallRun(llama);
  run.model.num_layers = 6;
  run.model.num_kv_heads = llama ? 2 : 4;
  run.model.tied_embeddings = tied;
  run.global_batch = 12;
  run.layout = ParseLayout(layout, 0);
  return run;
}

constexpr const char* kPipelines[] = {
    "pp=2",
    "pp=3",
    "pp=4",
    "pp=2,schedule=gpipe",
    "pp=3,schedule=gpipe",
    "pp=4,schedule=gpipe",
    "pp=2,schedule=zero-bubble",
    "pp=3,schedule=zero-bubble",
    "pp=4,schedule=zero-bubble",
    "pp=2,vp=2,schedule=interleaved-1f1b",
    "pp=2,vp=3,schedule=interleaved-1f1b",
    "pp=3,vp=2,schedule=interleaved-1f1b",
    "pp=4,vp=2,schedule=interleaved-1f1b",
    // Uneven, by themselves and as listed.
    "pp=5",
    "pp=8",
    "pp=2,stages=5+1",
    "pp=3,stages=0+6+0",
    "pp=4,stages=1+2+3+0,schedule=zero-bubble",
    "pp=2,vp=2,stages=0+3+2+1,schedule=interleaved-1f1b",
};

constexpr const char* kBeside[] = {
    "mbs=1",
    "mbs=3",
    "mbs=12",  // a single micro batch
    "mbs=1,recompute=full:uniform:2",
    "mbs=2,recompute=full:block:1",
    "mbs=2,tp=2",
    "mbs=1,tp=2,sp=1",
    "mbs=1,dp=2",
    "mbs=2,dp=2,zero=1",
    "mbs=1,tp=2,sp=1,dp=2,zero=1,recompute=selective:core_attn+layernorm+mlp_act+logits",
};

using Case = std::tuple<bool, bool, std::string>;  // Llama's family, tied embeddings, layout

using Families = std::vector<std::pair<bool, bool>>;

std::vector<Case> AllCases(const Families& families) {
  std::vector<Case> cases;
  for (const char* pipeline : kPipelines) {
    for (const char* beside : kBeside) {
      const std::string layout = std::string(pipeline) + "," + beside;
      for (const auto& [llama, tied] : families) {
        const RunConfig run = RunOf(llama, tied, layout);
        if (run.layout.world_size() > 8 || FirstBrokenRule(run) != nullptr) continue;
        cases.emplace_back(llama, tied, layout);
      }
    }
  }
  return cases;
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  const auto& [llama, tied, layout] = info.param;
  std::string name = fmt::format("{}{}_{}", llama ? "llama" : "gpt2", tied ? "_tied" : "", layout);
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

class PipelineTest : public testing::TestWithParam<Case> {
 protected:
  /// What one rank trains to.
  static const TrainedLosses& Expected(bool llama, bool tied) {
    static std::map<std::pair<bool, bool>, TrainedLosses> known;
    const auto [entry, is_new] = known.try_emplace({llama, tied});
    if (is_new) {
      const RunConfig run = RunOf(llama, tied, "mbs=2");
      entry->second = TrainOnRanks(run, *Source(run), kSteps);
    }
    return entry->second;
  }
  static std::unique_ptr<TokenSource> Source(const RunConfig& run) {
    return MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
  }
};

TEST_P(PipelineTest, TrainsLikeOneRank) {
  const auto& [llama, tied, layout] = GetParam();
  const TrainedLosses& expected = Expected(llama, tied);
  const RunConfig run = RunOf(llama, tied, layout);
  const TrainedLosses actual = TrainOnRanks(run, *Source(run), kSteps);
  ExpectSameTraining(actual, expected, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, PipelineTest,
    testing::ValuesIn(AllCases({{false, true}, {false, false}, {true, false}})), CaseName);

class PipelineMemoryTest : public PipelineTest {};

TEST_P(PipelineMemoryTest, DryRunPeaksAreTheMeasuredPeaks) {
  const auto& [llama, tied, layout] = GetParam();
  const RunConfig run = RunOf(llama, tied, layout);
  const auto source = Source(run);
  const TrainedLosses measured = TrainOnRanks(run, *source, 2);
  EXPECT_EQ(measured.peak_bytes, DryRunPeaks(run, *source));
}

INSTANTIATE_TEST_SUITE_P(Layouts, PipelineMemoryTest,
                         testing::ValuesIn(AllCases({{false, true}, {true, false}})), CaseName);

/// Refuses a sample on the rank that is to fail.
class FailingSource final : public TokenSource {
 public:
  FailingSource(const TokenSource& source, int64_t failing) : source_(source), failing_(failing) {}
  void Sample(int64_t index, std::span<int32_t> tokens) const override {
    if (index == failing_) throw StorageError(fmt::format("sample {} is damaged", index));
    source_.Sample(index, tokens);
  }
  int64_t vocab_size() const override { return source_.vocab_size(); }

 private:
  const TokenSource& source_;
  int64_t failing_;
};

TEST(PipelineFailureTest, EndsAllStagesNamingTheOneThatFailed) {
  for (const char* layout :
       {"pp=4,mbs=1", "pp=4,mbs=1,schedule=zero-bubble", "pp=4,mbs=1,schedule=gpipe",
        "pp=4,vp=2,mbs=1,schedule=interleaved-1f1b", "pp=2,dp=2,mbs=1,tp=2"}) {
    for (const int failing : {0, -1}) {  // first and last stage read samples
      const RunConfig run = RunOf(false, true, layout);
      const auto ranks = static_cast<int>(run.layout.world_size());
      const int failing_rank = (failing + ranks) % ranks;
      const auto source = MakeSyntheticSource(run.model.vocab_size, 7);
      const FailingSource damaged(*source, run.layout.dp > 1 && failing < 0 ? 8 : 2);
      std::atomic<int> told{0};
      EXPECT_THROW(RunRanks(run,
                            [&](Rank& rank) {
                              Trainer trainer(run, rank.parallel(), rank.device());
                              const bool fails = rank.index() == failing_rank;
                              try {
                                trainer.Step(
                                    fails ? static_cast<const TokenSource&>(damaged) : *source, 0);
                              } catch (const CommError& error) {
                                const std::string name = fmt::format("rank {}", failing_rank);
                                if (std::string(error.what()).find(name) != std::string::npos) {
                                  ++told;
                                }
                                throw;
                              }
                            }),
                   StorageError)
          << layout;
      EXPECT_EQ(told, ranks - 1) << layout << ", rank " << failing_rank;
    }
  }
}

}  // namespace
}  // namespace trimtab
