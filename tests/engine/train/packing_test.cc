// Packed documents train to the losses of one rank in layouts of every kind, and take the memory
// that the dry run says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <map>

#include "engine/config/rules/rules.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 4;
constexpr double kTolerance = 1e-5;  // relative; fp32 sums in another order

struct Family {
  const char* name;
  bool llama;
  PositionKind position;
  int64_t window = 0;  // of all layers but every other one
  int64_t experts = 0;
};
constexpr Family kFamilies[] = {{"gpt2", false, PositionKind::kLearned},
                                {"llama", true, PositionKind::kRope},
                                {"alibi_gpt2", false, PositionKind::kAlibi},
                                {"windowed_llama", true, PositionKind::kRope, 5},
                                {"mixtral", true, PositionKind::kRope, 0, 4}};

RunConfig RunOf(const Family& family, const std::string& layout) {
  RunConfig run = family.experts > 0 ? SmallExpertRun(family.llama) : SmallRun(family.llama);
  run.model.num_layers = 4;
  run.model.num_kv_heads = 2;
  run.model.position = family.position;
  run.model.sliding_window = family.window;
  run.model.full_attention_period = family.window > 0 ? 2 : 0;
  run.model.max_sequence_length = 24;
  run.sequence_length = 24;
  run.packing.mask = AttentionMask::kDocuments;
  run.packing.lengths = {{.tokens = 1, .weight = 1}, {.tokens = 7, .weight = 3}, {.tokens = 30}};
  run.layout = ParseLayout(layout, 0);
  return run;
}

std::unique_ptr<TokenSource> SourceOf(const RunConfig& run) {
  return MakeSyntheticSource(run.model.vocab_size, /*seed=*/7, run.packing.lengths);
}

const TrainedLosses& Expected(const Family& family) {
  static std::map<std::string, TrainedLosses> known;
  const auto [entry, is_new] = known.try_emplace(family.name);
  if (is_new) {
    const RunConfig run = RunOf(family, "mbs=2");
    entry->second = TrainOnRanks(run, *SourceOf(run), kSteps);
  }
  return entry->second;
}

using Case = std::tuple<Family, std::string>;

constexpr const char* kLayouts[] = {
    "mbs=1",
    "mbs=4",
    "dp=2,mbs=2",
    "dp=4,zero=1,mbs=1",
    "dp=2,zero=2,mbs=2",
    "dp=4,zero=3,shard=2,mbs=1",
    "tp=2,mbs=2",
    "tp=2,sp=1,mbs=1",
    "tp=4,sp=1,mbs=2",
    "tp=2,sp=1,tp_overlap_chunks=2,mbs=2",
    "pp=2,mbs=2",
    "pp=2,mbs=1,schedule=gpipe",
    "pp=2,mbs=2,schedule=zero-bubble",
    "pp=2,vp=2,mbs=2,schedule=interleaved-1f1b",
    "mbs=2,recompute=full",
    "pp=2,mbs=2,recompute=selective:core_attn+layernorm+mlp_act",
    "cp=2,cp_comm_type=p2p,mbs=1",
    "cp=2,cp_comm_type=all_gather,mbs=2",
    "cp=3,cp_comm_type=p2p,mbs=2",
    "cp=4,cp_comm_type=all_gather,mbs=1",
    "cp=4,cp_comm_type=p2p,mbs=4",
    "cp=2,tp=2,sp=1,mbs=2,cp_comm_type=p2p",
    "cp=2,tp=2,sp=1,mbs=2,cp_comm_type=all_gather",
    "cp=2,pp=2,mbs=2,cp_comm_type=p2p",
    "cp=2,pp=2,mbs=2,schedule=zero-bubble,cp_comm_type=all_gather",
    "cp=2,dp=2,zero=3,mbs=2,cp_comm_type=p2p",
    "cp=2,zero=1,mbs=2,recompute=full,cp_comm_type=p2p",
    "cp=2,tp=2,sp=1,pp=2,mbs=1,cp_comm_type=p2p",
    "tp=2,sp=1,pp=2,dp=2,zero=1,mbs=2",
    "ep=2,dp=2,mbs=2",
    "ep=2,tp=2,sp=1,mbs=2",
    "ep=2,cp=2,mbs=2,cp_comm_type=all_gather",
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Family& family : kFamilies) {
    for (const char* layout : kLayouts) {
      if (FirstBrokenRule(RunOf(family, layout)) != nullptr) continue;
      cases.emplace_back(family, layout);
    }
  }
  return cases;
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  std::string name = fmt::format("{}_{}", std::get<0>(info.param).name, std::get<1>(info.param));
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

class PackingTest : public testing::TestWithParam<Case> {};

TEST_P(PackingTest, TrainsLikeOneRankInTheMemoryOfTheDryRun) {
  const auto& [family, layout] = GetParam();
  const RunConfig run = RunOf(family, layout);
  const auto source = SourceOf(run);
  const TrainedLosses actual = TrainOnRanks(run, *source, kSteps);
  ExpectSameTraining(actual, Expected(family), kTolerance);
  if (family.experts > 0) return;  // what experts take depends on the tokens
  EXPECT_EQ(actual.peak_bytes, DryRunPeaks(run, *source));
}

INSTANTIATE_TEST_SUITE_P(Layouts, PackingTest, testing::ValuesIn(Cases()), CaseName);

// Of the layouts every model has those that are legal: with experts, with and without cp.
TEST(PackingCases, AreManyOfEveryModel) {
  std::map<std::string, int> counts;
  for (const auto& [family, layout] : Cases()) ++counts[family.name];
  EXPECT_EQ(counts.size(), std::size(kFamilies));
  for (const auto& [name, count] : counts) EXPECT_GE(count, 20) << name;
}

TEST(Packing, ChangesTheLossUnlessEverySequenceIsOneDocument) {
  RunConfig run = RunOf(kFamilies[0], "mbs=2");
  const auto packed = SourceOf(run);
  const auto whole = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
  const TrainedLosses masked_whole = TrainOnRanks(run, *whole, 2);
  const TrainedLosses masked = TrainOnRanks(run, *packed, 2);
  run.packing.mask = AttentionMask::kCausal;
  const TrainedLosses causal = TrainOnRanks(run, *packed, 2);
  EXPECT_EQ(masked_whole.losses, causal.losses) << "bit for bit";
  EXPECT_EQ(masked_whole.grad_norms, causal.grad_norms);
  EXPECT_NE(masked.losses, causal.losses);
}

TEST(Packing, RefusesRoutersThatLookAtWholeSequences) {
  RunConfig run = RunOf(kFamilies[4], "mbs=2");
  EXPECT_EQ(FirstBrokenRule(run), nullptr);
  run.model.moe.capacity_factor = 1.5;
  ASSERT_NE(FirstBrokenRule(run), nullptr);
  EXPECT_STREQ(FirstBrokenRule(run)->id, "document-mask-requires-routing-by-token");
}

}  // namespace
}  // namespace trimtab
