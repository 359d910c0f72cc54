// The plan of recomputation of each pipeline stage.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "engine/config/layout/recompute.h"

namespace trimtab {

/// One plan for every stage, or a list of them in the order of the stages; a stage's plan holds for
/// each of its model chunks. A value of fixed size, so that layouts stay trivially copyable.
class StageRecompute {
 public:
  /// Neighbouring stages with the same plan.
  struct Run {
    RecomputeConfig plan{};
    int32_t stages = 0;

    bool operator==(const Run&) const = default;
  };
  static constexpr size_t kMaxRuns = 8;

  StageRecompute() = default;
  /// `plan` for every stage.
  StageRecompute(const RecomputeConfig& plan) { runs_[0].plan = plan; }
  /// A list: at most kMaxRuns runs of at least one stage, neighbours with different plans.
  explicit StageRecompute(std::span<const Run> runs);

  /// Stages that are listed; 0: one plan holds for all, however many there are.
  int64_t size() const;
  /// The plan of stage `stage`, from 0.
  const RecomputeConfig& operator[](int64_t stage) const;
  /// The list; or one run, of no stages, that holds for all.
  std::span<const Run> runs() const { return std::span(runs_).first(count_); }

  bool operator==(const StageRecompute&) const = default;

 private:
  uint8_t count_ = 1;
  std::array<Run, kMaxRuns> runs_{};  // empty behind count_
};

/// The forms that ParseStageRecompute reads, PLAN being one of kRecomputeForms.
inline constexpr char kStageRecomputeForms[] = "PLAN, or by pipeline stage PLAN/NxPLAN/...";

/// "full", or by stage "4xfull/full:block:2/11xnone".
std::string ToString(const StageRecompute& recompute);
/// Inverse of ToString; equal neighbours may also be written one by one. Throws UsageError naming
/// `what`.
StageRecompute ParseStageRecompute(const std::string& text, const std::string& what);

}  // namespace trimtab
