// Sequences cut over ranks train to the losses of one rank, by either way to the keys of others,
// for heads and positions of every kind, and take the memory the dry run says.
// (every_layout_test.cc has them in every company.)
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <variant>

#include "engine/config/rules/rules.h"
#include "engine/runtime/ranks.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 5;
constexpr double kTolerance = 1e-5;  // relative; fp32 sums in another order

struct Family {
  const char* name;
  bool llama;
  int64_t kv_heads;
  PositionKind position;
  int64_t window = 0;  // of all layers but every other one
};
constexpr Family kFamilies[] = {{"gpt2", false, 4, PositionKind::kLearned},
                                {"llama", true, 2, PositionKind::kRope},
                                {"grouped_gpt2", false, 2, PositionKind::kLearned},
                                {"plain_llama", true, 4, PositionKind::kRope},
                                {"rotary_gpt2", false, 4, PositionKind::kRope},
                                {"alibi_gpt2", false, 4, PositionKind::kAlibi},
                                {"windowed_llama", true, 2, PositionKind::kRope, 5}};

/// Four layers, 24 tokens: shares of two, three and four ranks come out even.
RunConfig RunOf(const Family& family, const std::string& layout) {
  RunConfig run = SmallRun(family.llama);
  run.model.num_layers = 4;
  run.model.num_kv_heads = family.kv_heads;
  run.model.position = family.position;
  run.model.sliding_window = family.window;
  run.model.full_attention_period = family.window > 0 ? 2 : 0;
  run.model.max_sequence_length = 24;
  run.sequence_length = 24;
  run.layout = ParseLayout(layout, 0);
  return run;
}

constexpr const char* kRanks[] = {"cp=2", "cp=3", "cp=4"};
constexpr const char* kMessages[] = {"cp_comm_type=p2p", "cp_comm_type=all_gather"};

using Case = std::tuple<Family, std::string>;

std::vector<Case> CasesOf(std::initializer_list<Family> families,
                          std::initializer_list<const char*> beside) {
  std::vector<Case> cases;
  for (const Family& family : families) {
    for (const char* ranks : kRanks) {
      for (const char* messages : kMessages) {
        for (const char* more : beside) {
          const std::string layout = fmt::format("{},{},{}", ranks, messages, more);
          const RunConfig run = RunOf(family, layout);
          if (run.layout.world_size() > 8) continue;
          const Rule* broken = FirstBrokenRule(run);
          EXPECT_EQ(broken, nullptr) << layout << ": " << (broken == nullptr ? "" : broken->id);
          cases.emplace_back(family, layout);
        }
      }
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

std::unique_ptr<TokenSource> SourceOf(const RunConfig& run) {
  return MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
}

/// What one rank trains to.
const TrainedLosses& Expected(const Family& family) {
  static std::map<std::string, TrainedLosses> known;
  const auto [entry, is_new] = known.try_emplace(family.name);
  if (is_new) {
    const RunConfig run = RunOf(family, "mbs=2");
    entry->second = TrainOnRanks(run, *SourceOf(run), kSteps);
  }
  return entry->second;
}

class ContextParallelTest : public testing::TestWithParam<Case> {};

TEST_P(ContextParallelTest, TrainsLikeOneRankInTheMemoryOfTheDryRun) {
  const auto& [family, layout] = GetParam();
  const RunConfig run = RunOf(family, layout);
  const auto source = SourceOf(run);
  const TrainedLosses actual = TrainOnRanks(run, *source, kSteps);
  ExpectSameTraining(actual, Expected(family), kTolerance);
  EXPECT_EQ(actual.peak_bytes, DryRunPeaks(run, *source));
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ContextParallelTest,
    testing::ValuesIn(CasesOf(
        {kFamilies[0], kFamilies[1]},
        {"mbs=1", "mbs=4", "tp=2,sp=1,mbs=1", "dp=2,mbs=2", "zero=1,mbs=2", "zero=3,mbs=2",
         "dp=2,zero=3,shard=2,mbs=1", "tp=2,tp_overlap_chunks=2,mbs=2", "mbs=2,recompute=full",
         "mbs=2,recompute=selective:core_attn+layernorm+mlp_act", "pp=2,mbs=2",
         "pp=2,mbs=2,schedule=zero-bubble", "pp=2,vp=2,mbs=2,schedule=interleaved-1f1b"})),
    CaseName);

INSTANTIATE_TEST_SUITE_P(Heads, ContextParallelTest,
                         testing::ValuesIn(CasesOf({kFamilies[2], kFamilies[3], kFamilies[4],
                                                    kFamilies[5], kFamilies[6]},
                                                   {"mbs=2", "tp=2,sp=1,mbs=2"})),
                         CaseName);

/// What a rank reports, but for whom it talks to.
class Listener final : public Recorder {
 public:
  using Event = std::variant<OpRecord, CommRecord>;

  void BeginOp(const OpRecord& op) override { events.emplace_back(op); }
  void BeginComm(const CommRecord& message) override { Note(message); }
  void BeginWait(const CommRecord& message) override { Note(message); }
  void End() override {}

  std::vector<Event> events;

 private:
  void Note(CommRecord message) {
    message.peer = -1;
    events.emplace_back(message);
  }
};

// A step is predicted from the program of one rank, which stands for all.
TEST(ContextParallelProgram, IsOfTheSameCostOnEveryRank) {
  for (const char* layout : {"cp=4,mbs=2", "cp=4,cp_comm_type=all_gather,mbs=1",
                             "cp=3,tp=2,sp=1,mbs=2,recompute=selective:core_attn"}) {
    const RunConfig run = RunOf(kFamilies[1], layout);
    const auto source = SourceOf(run);
    std::vector<std::vector<Listener::Event>> events;
    for (int rank = 0; rank < run.layout.world_size(); ++rank) {
      const auto device = MakeMetaDevice(1);
      const ParallelContext context = MakeMetaContext(run.layout, rank);
      Trainer trainer(run, context, *device);
      Listener listener;
      device->set_recorder(&listener);
      trainer.Step(*source, 0);
      device->set_recorder(nullptr);
      events.push_back(std::move(listener.events));
    }
    for (const auto& each : events) EXPECT_TRUE(each == events.front()) << layout;
  }
}

}  // namespace
}  // namespace trimtab
