#include "search/space.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/base/error.h"
#include "engine/config/rules.h"
#include "search/space_rows.h"

namespace trimtab {
namespace {

/// What all candidates share.
RunConfig BaseRun(const Problem& problem) {
  RunConfig run;
  run.model = problem.model;
  run.optimizer = problem.optimizer;
  run.device = problem.cluster.device;
  run.global_batch = problem.global_batch;
  run.sequence_length = problem.sequence_length;
  run.steps = problem.steps;
  run.seed = problem.seed;
  run.data = problem.data;
  return run;
}

/// Walks the product of the rows, depth first, in one RunConfig that is bound and bound again.
class Walk {
 public:
  Walk(const Problem& problem, const std::function<void(const RunConfig& run)>& visit)
      : problem_(problem), visit_(visit), run_(BaseRun(problem)), values_(rows_.size()) {
    for (const Rule& rule : LegalityRules()) {
      if (IsUnsupported(rule)) unsupported_.push_back(&rule);
    }
    for (const SpaceRow& row : rows_) {
      std::vector<const Rule*>& settled = settled_.emplace_back();
      for (const Rule& rule : LegalityRules()) {
        const auto is_rule = [&](const char* id) { return std::string_view(id) == rule.id; };
        if (std::any_of(row.settles.begin(), row.settles.end(), is_rule)) settled.push_back(&rule);
      }
    }
  }

  SpaceCounts Run() {
    Descend(0);
    for (const Rule& rule : LegalityRules()) {
      const auto found = pruned_.find(&rule);
      if (found != pruned_.end()) counts_.pruned.emplace_back(rule.id, found->second);
    }
    return std::move(counts_);
  }

 private:
  /// Calls `each` for every value of row `depth` that this version runs, with the value bound.
  template <typename Each>
  void ForEachValue(size_t depth, Each each) {
    const SpaceRow& row = rows_[depth];
    if (!row.applies(problem_, run_)) return each();
    std::vector<int64_t>& values = values_[depth];
    values.clear();
    row.values(problem_, run_, values);
    const ParallelConfig before = run_.layout;
    for (const int64_t value : values) {
      row.bind(problem_, value, run_);
      if (FirstBroken(unsupported_) == nullptr) each();
      run_.layout = before;
    }
  }

  void Descend(size_t depth) {
    if (depth == rows_.size()) return Judge();
    ForEachValue(depth, [&] {
      const Rule* broken = FirstBroken(settled_[depth]);
      if (broken == nullptr) return Descend(depth + 1);
      Prune(*broken, CountBelow(depth + 1));
    });
  }

  int64_t CountBelow(size_t depth) {
    if (depth == rows_.size()) return 1;
    int64_t count = 0;
    ForEachValue(depth, [&] { count += CountBelow(depth + 1); });
    return count;
  }

  void Judge() {
    if (const Rule* broken = FirstBrokenRule(run_)) return Prune(*broken, 1);
    ++counts_.enumerated;
    ++counts_.legal;
    visit_(run_);
  }

  void Prune(const Rule& rule, int64_t count) {
    counts_.enumerated += count;
    pruned_[&rule] += count;
  }

  const Rule* FirstBroken(const std::vector<const Rule*>& rules) const {
    for (const Rule* rule : rules) {
      if (!rule->holds(run_)) return rule;
    }
    return nullptr;
  }

  const Problem& problem_;
  const std::function<void(const RunConfig& run)>& visit_;
  const std::vector<SpaceRow>& rows_ = SpaceRows();
  RunConfig run_;
  std::vector<std::vector<int64_t>> values_;       // of each row, as far as it is bound
  std::vector<std::vector<const Rule*>> settled_;  // by each row
  std::vector<const Rule*> unsupported_;
  std::map<const Rule*, int64_t> pruned_;
  SpaceCounts counts_;
};

void RequireSensible(const Problem& problem) {
  if (problem.global_batch < 1 || problem.sequence_length < 1) {
    throw UsageError(
        fmt::format("the global batch ({}) and sequence length ({}) must be at least 1",
                    problem.global_batch, problem.sequence_length));
  }
  if (problem.precisions.empty() || problem.optimizer_states.empty()) {
    throw UsageError("expected at least one precision and one optimizer state");
  }
  if (problem.max_ranks < 0 || problem.max_micro_batch < 1 || problem.memory_per_rank_bytes < 0) {
    throw UsageError("limits on ranks, micro batch and memory must be positive");
  }
}

}  // namespace

nlohmann::json ToJson(const Problem& problem) {
  nlohmann::json precisions = nlohmann::json::array();
  for (const Precision each : problem.precisions) precisions.push_back(Name(each));
  return {
      {"model", ToJson(problem.model)},
      {"cluster",
       {{"name", problem.cluster.name},
        {"device", problem.cluster.device},
        {"nodes", problem.cluster.nodes},
        {"ranks_per_node", problem.cluster.ranks_per_node},
        {"max_ranks", problem.cluster.max_ranks},
        {"cores", problem.cluster.cores},
        {"memory_bytes", problem.cluster.memory_bytes}}},
      {"global_batch", problem.global_batch},
      {"sequence_length", problem.sequence_length},
      {"precisions", precisions},
      {"optimizer_states", problem.optimizer_states},
      {"memory_per_rank_bytes", problem.memory_per_rank_bytes},
      {"max_ranks", problem.max_ranks},
      {"max_micro_batch", problem.max_micro_batch},
      // The settings of a run that are not part of its layout, in the form of RUN.json.
      {"optimizer", ToJson(BaseRun(problem)).at("optimizer")},
      {"seed", problem.seed},
      {"data", problem.data},
      {"steps", problem.steps},
  };
}

SpaceCounts WalkSpace(const Problem& problem,
                      const std::function<void(const RunConfig& run)>& visit) {
  RequireSensible(problem);
  return Walk(problem, visit).Run();
}

int64_t MemoryLimitBytes(const Problem& problem, const RunConfig& run) {
  if (problem.memory_per_rank_bytes > 0) return problem.memory_per_rank_bytes;
  if (problem.cluster.device != "cpu") return problem.cluster.memory_bytes;
  return problem.cluster.memory_bytes / run.layout.world_size();
}

std::string CandidateKey(const RunConfig& run) { return ToString(run.layout); }

}  // namespace trimtab
