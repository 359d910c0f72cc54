#include "profiler/calibrate/calibrate_visit.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "profiler/calibrate/calibrate_precision.h"
#include "profiler/calibrate/calibrate_rig.h"
#include "profiler/calibrate/calibrate_tables.h"

namespace trimtab {
namespace {

/// Something to measure, with the ranks in tensor-parallel groups of `group`.
struct Part {
  std::string table;
  int group = 1;
  std::function<void(Rig& rig, const CalibrationPlan& plan, ModeTables& tables)> measure;
};

/// In order of groups: that of all ranks first.
std::vector<Part> PartsOf(const Mode& mode) {
  std::vector<Part> parts = {
      {"gemm", mode.ranks,
       [](Rig& rig, const CalibrationPlan& plan, ModeTables& tables) {
         tables.gemm = MeasureGemm(rig, plan);
       }},
      {"attention", mode.ranks,
       [](Rig& rig, const CalibrationPlan& plan, ModeTables& tables) {
         tables.attention = MeasureAttention(rig, plan);
       }},
      {"ops", mode.ranks,
       [](Rig& rig, const CalibrationPlan& plan, ModeTables& tables) {
         tables.ops = MeasureOps(rig, plan);
       }},
      {"precisions", mode.ranks, [](Rig& rig, const CalibrationPlan& plan, ModeTables& tables) {
         tables.precisions = MeasurePrecisions(rig, plan);
       }}};
  for (int group = mode.ranks; group >= 2; --group) {
    if (mode.ranks % group != 0) continue;
    parts.push_back(
        {"collectives", group, [group](Rig& rig, const CalibrationPlan& plan, ModeTables& tables) {
           for (auto& [kind, points] : MeasureCollectives(rig, plan)) {
             tables.collectives[{kind, group}] = points;
           }
         }});
  }
  return parts;
}

RunConfig GroupsOf(int group, const Mode& mode) {
  RunConfig run;
  run.layout.tp = group;
  run.layout.dp = mode.ranks / group;
  run.threads_per_rank = mode.threads;
  return run;
}

}  // namespace

Visit VisitMode(const Mode& mode, const CalibrationPlan& plan) {
  Visit visit;
  RigClock clock(static_cast<size_t>(mode.ranks));
  const std::vector<Part> parts = PartsOf(mode);
  for (size_t begin = 0, end = 0; begin < parts.size(); begin = end) {
    while (end < parts.size() && parts[end].group == parts[begin].group) ++end;
    RunRanksHere(GroupsOf(parts[begin].group, mode), [&](Rank& rank) {
      Rig rig(plan.window_s, rank, clock);
      ModeTables not_yet;  // what they come to is known after all passes
      for (size_t i = begin; i < end; ++i) {
        parts[i].measure(rig, plan, not_yet);
        const Pass readings = rig.TakeReadings();
        if (rank.speaks()) Append(readings, visit[parts[i].table]);
      }
    });
  }
  return visit;
}

void FillTables(const CalibrationPlan& plan,
                const std::map<std::string, std::vector<double>>& seconds, ModeTables& tables) {
  std::map<std::string, std::span<const double>> left(seconds.begin(), seconds.end());
  for (const Part& part : PartsOf(tables.mode)) {
    RunRanksHere(GroupsOf(part.group, tables.mode), [&](Rank& rank) {
      if (!rank.speaks()) return;
      Rig rig(left.at(part.table), rank);
      part.measure(rig, plan, tables);
    });
  }
}

}  // namespace trimtab
