#include "engine/config/layout/stage_recompute.h"

#include <algorithm>
#include <vector>

#include "engine/base/error.h"
#include "engine/config/json/text_values.h"
#include "engine/config/model/model_limits.h"

namespace trimtab {
namespace {

/// Takes "4x" off the front of `part`: 4, or -1 where there is no such number.
int64_t TakeCount(std::string& part) {
  const size_t x = part.find('x');
  int64_t count = 0;
  if (x == std::string::npos || !ParseInteger(part.substr(0, x), count)) return -1;
  part.erase(0, x + 1);
  return count;
}

}  // namespace

StageRecompute::StageRecompute(std::span<const Run> runs)
    : count_(static_cast<uint8_t>(runs.size())) {
  TRIMTAB_ASSERT(!runs.empty() && runs.size() <= kMaxRuns, "{} runs of stages", runs.size());
  std::copy(runs.begin(), runs.end(), runs_.begin());
}

int64_t StageRecompute::size() const {
  int64_t stages = 0;
  for (const Run& run : runs()) stages += run.stages;
  return stages;
}

const RecomputeConfig& StageRecompute::operator[](int64_t stage) const {
  size_t run = 0;
  for (int64_t end = runs_[0].stages; end > 0 && stage >= end; end += runs_[run].stages) {
    ++run;
    TRIMTAB_ASSERT(run < count_, "stage {} of {}", stage, ToString(*this));
  }
  return runs_[run].plan;
}

std::string ToString(const StageRecompute& recompute) {
  if (recompute.size() == 0) return ToString(recompute[0]);
  const bool alone = recompute.runs().size() == 1;
  std::string text;
  for (const StageRecompute::Run& run : recompute.runs()) {
    if (!text.empty()) text += '/';
    // A single plan without a number would hold for all stages.
    if (run.stages > 1 || alone) text += fmt::format("{}x", run.stages);
    text += ToString(run.plan);
  }
  return text;
}

StageRecompute ParseStageRecompute(const std::string& text, const std::string& what) {
  std::vector<std::string> parts = Split(text, '/');
  std::vector<StageRecompute::Run> runs;
  for (std::string& part : parts) {
    const int64_t given = TakeCount(part);
    const RecomputeConfig plan = ParseRecompute(part, what);
    if (given < 0 && parts.size() == 1) return plan;
    const int64_t stages = given < 0 ? 1 : given;
    if (stages < 1 || stages > kMaxWorld) {
      throw UsageError(fmt::format("{}: expected from 1 to {} stages of {}, got {}", what,
                                   kMaxWorld, part, stages));
    }
    if (runs.empty() || runs.back().plan != plan) runs.push_back({.plan = plan, .stages = 0});
    runs.back().stages += static_cast<int32_t>(stages);
  }
  if (runs.size() > StageRecompute::kMaxRuns) {
    throw UsageError(
        fmt::format("{}: the plan changes {} times from stage to stage; expected at "
                    "most {} times",
                    what, runs.size() - 1, StageRecompute::kMaxRuns - 1));
  }
  return StageRecompute(runs);
}

}  // namespace trimtab
