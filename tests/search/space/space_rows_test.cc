#include "search/space/space_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <stdexcept>

#include "engine/families/load_config.h"
#include "search/space/space_tree.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

const SpaceRow& RowCalled(const std::string& name) {
  for (const SpaceRow& row : SpaceRows()) {
    if (row.name == name) return row;
  }
  throw std::out_of_range(name);
}

std::vector<int64_t> ValuesOf(const std::string& name, const Problem& problem,
                              const RunConfig& bound) {
  std::vector<int64_t> values;
  RowCalled(name).values(problem, bound, values);
  return values;
}

// Also of dimensions that the engine does not run yet.
TEST(SpaceRows, ValuesFollowFromWhatIsBound) {
  using Values = std::vector<int64_t>;
  Problem problem = TinyProblem();
  problem.model.num_layers = 12;
  problem.sequence_length = 8;
  RunConfig bound;
  bound.layout.dp = 12;
  EXPECT_EQ(ValuesOf("tp", problem, bound), (Values{1, 2, 3, 4, 6, 12}));
  EXPECT_EQ(ValuesOf("cp", problem, bound), (Values{1, 2, 3, 4})) << "at least two tokens each";
  problem.model.num_layers = 6;
  EXPECT_EQ(ValuesOf("pp", problem, bound), (Values{1, 2, 3, 4, 6})) << "at most a layer each";
  EXPECT_EQ(ValuesOf("zero", problem, bound), (Values{0, 1, 2, 3}));
  EXPECT_EQ(ValuesOf("shard", problem, bound), (Values{0, 4}))
      << "all 12 ranks, or those of a node";
  EXPECT_FALSE(RowCalled("shard").applies(problem, bound)) << "nothing is sharded";
  bound.layout.zero = 1;
  EXPECT_TRUE(RowCalled("shard").applies(problem, bound));
  bound.layout.tp = 4;
  EXPECT_EQ(ValuesOf("shard", problem, bound), (Values{0})) << "a node has one of them";
  bound.layout = {.dp = 4, .zero = 1};
  EXPECT_FALSE(RowCalled("shard").applies(problem, bound)) << "all are in one node";
  bound.layout = {.dp = 12};
  EXPECT_FALSE(RowCalled("tp_overlap_chunks").applies(problem, bound)) << "not on a cpu";

  EXPECT_FALSE(RowCalled("cp_comm_type").applies(problem, bound)) << "with nobody to talk to";
  RowCalled("cp").bind(problem, 2, bound);
  EXPECT_EQ(bound.layout.cp, 2);
  EXPECT_EQ(bound.layout.dp, 6);
  EXPECT_TRUE(RowCalled("cp_comm_type").applies(problem, bound));
  EXPECT_EQ(ValuesOf("cp_comm_type", problem, bound), (Values{0, 1}));
  RowCalled("cp").bind(problem, 1, bound);
  bound.layout.dp = 12;

  EXPECT_FALSE(RowCalled("schedule").applies(problem, bound)) << "without a pipeline";
  RowCalled("pp").bind(problem, 3, bound);
  EXPECT_EQ(bound.layout.pp, 3);
  EXPECT_EQ(bound.layout.dp, 4);
  EXPECT_TRUE(RowCalled("schedule").applies(problem, bound));
  EXPECT_FALSE(RowCalled("vp").applies(problem, bound)) << "1f1b has one chunk per rank";
  RowCalled("schedule").bind(problem, static_cast<int64_t>(Schedule::kInterleaved1F1B), bound);
  EXPECT_TRUE(RowCalled("vp").applies(problem, bound));
  EXPECT_EQ(ValuesOf("vp", problem, bound), (Values{2}));
  problem.model.num_layers = 36;
  EXPECT_EQ(ValuesOf("vp", problem, bound), (Values{2, 3, 4, 6, 12}));
}

Problem GpuProblem(const char* preset) {
  Problem problem = TinyProblem();
  problem.cluster.device = DeviceKind::kCuda;
  problem.cluster.max_ranks = 8;
  problem.cluster.ranks_per_node = 4;
  problem.precisions = {Precision::kBf16, Precision::kFp8};
  problem.global_batches = {4, 6};
  problem.model = LoadModelConfig(preset);
  problem.model.num_layers = 4;
  problem.model.moe.num_experts = std::min<int64_t>(problem.model.moe.num_experts, 4);
  return problem;
}

// Whatever the rows above have bound, two values of a row are two candidates, which are called
// differently.
TEST(SpaceRows, TellTheirValuesApart) {
  std::mt19937 random(3);
  std::set<const SpaceRow*> met;
  for (const char* preset : {"llama2-7b", "mixtral-8x7b"}) {
    Problem problem = GpuProblem(preset);
    problem.gpus = {4, 8};
    problem.model.num_layers = 8;
    problem.optimizer_states = {"auto"};
    for (int descent = 0; descent < 500; ++descent) {
      RunConfig bound = RootOf(problem);
      for (const SpaceRow& row : SpaceRows()) {
        if (!row.applies(problem, bound)) continue;
        std::vector<int64_t> values;
        row.values(problem, bound, values);
        if (values.empty()) break;
        RunConfig first = bound;
        row.bind(problem, values[random() % values.size()], first);
        for (const int64_t value : values) {
          RunConfig second = bound;
          row.bind(problem, value, second);
          const bool same = first == second;
          if (!same) met.insert(&row);
          EXPECT_EQ(CandidateKey(first, true) == CandidateKey(second, true), same) << row.name;
          if (row.alike == nullptr) continue;
          EXPECT_EQ(row.alike(first, second), same) << row.name;
        }
        bound = first;
      }
    }
  }
  for (const SpaceRow& row : SpaceRows()) EXPECT_TRUE(met.contains(&row)) << row.name;
}

/// Every value of every row from `depth` on, bound one after the other.
int64_t CountOneByOne(const Problem& problem, size_t depth, RunConfig& run) {
  if (depth == SpaceRows().size()) return 1;
  const SpaceRow& row = SpaceRows()[depth];
  if (!row.applies(problem, run)) return CountOneByOne(problem, depth + 1, run);
  std::vector<int64_t> values;
  row.values(problem, run, values);
  const ParallelConfig layout = run.layout;
  const int64_t batch = run.global_batch;
  int64_t count = 0;
  for (const int64_t value : values) {
    row.bind(problem, value, run);
    count += CountOneByOne(problem, depth + 1, run);
    run.layout = layout;
    run.global_batch = batch;
  }
  return count;
}

// What a tree remembers of a branch holds for all that agree in what rows below look at: so a row
// must not say too early that nobody looks at its value any more.
TEST(SpaceRows, AreLookedAtByNoRowBelowTheLastReader) {
  for (const char* preset : {"llama2-7b", "mixtral-8x7b"}) {
    const Problem problem = GpuProblem(preset);
    RunConfig root = RootOf(problem);
    EXPECT_EQ(SpaceTree(problem).CountBelow(0), CountOneByOne(problem, 0, root)) << preset;
  }
}

TEST(SpaceRows, SettleRulesThatThereAre) {
  std::set<std::string> ids;
  for (const Rule& rule : LegalityRules()) ids.insert(rule.id);
  for (const SpaceRow& row : SpaceRows()) {
    for (const char* id : row.settles) EXPECT_TRUE(ids.contains(id)) << row.name << ": " << id;
  }
}

}  // namespace
}  // namespace trimtab
