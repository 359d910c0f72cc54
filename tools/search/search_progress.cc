#include "tools/search/search_progress.h"

#include <utility>

#include "engine/base/log.h"
#include "engine/base/units.h"
#include "tools/cli/signals.h"
#include "tools/search/search_text.h"

namespace trimtab {
namespace {

/// Without a terminal, a walk tells how far it is as often as this.
constexpr auto kWalkLines = std::chrono::seconds(10);

}  // namespace

SearchProgress::SearchProgress(const OutputOptions& output, std::string caveat)
    : progress_(output), caveat_(std::move(caveat)) {}

void SearchProgress::OnResume(int64_t measured, int64_t ingested) {
  progress_.Event(
      fmt::format("resuming: {} candidates measured, {} results taken in", measured, ingested));
}

void SearchProgress::OnWalk(const WalkProgress& walk) {
  const std::string best =
      walk.best_tokens_per_s > 0 ? fmt::format("{:.0f} tokens/s", walk.best_tokens_per_s) : "";
  const std::string label = fmt::format("walking the space: {} branches open, gap {:.0f} %",
                                        walk.open_branches, 100 * walk.gap);
  progress_.Update({.label = label, .done = walk.settled, .best = best});
  const auto now = Clock::now();
  if (progress_.shows_bar() || now - last_walk_ < kWalkLines) return;
  last_walk_ = now;
  progress_.Event(fmt::format("{}, {} candidates settled{}{}", label, walk.settled,
                              best.empty() ? "" : ", best ", best));
}

void SearchProgress::OnSpace(const SpaceSummary& summary) {
  if (!caveat_.empty()) LogWarning("{}", caveat_);
  progress_.Event(fmt::format("{} candidates, {} looked at, {} fit", summary.size, summary.visited,
                              summary.feasible));
}

void SearchProgress::OnDryRun(int64_t done, int64_t total) {
  progress_.Update({.label = "dry runs", .done = done, .total = total});
}

void SearchProgress::OnDryRunsEnd(int64_t done) {
  if (!progress_.shows_bar()) progress_.Event(fmt::format("{} dry runs done", done));
}

void SearchProgress::OnVisitStart(const CandidateRecord& /*candidate*/, const RaceProgress& race) {
  Show(race);
}

void SearchProgress::OnVisitEnd(const CandidateRecord& candidate, const TrialOutcome& outcome,
                                const RaceProgress& race) {
  progress_.Event(VisitText(candidate, outcome, race));
  Show(race);
}

void SearchProgress::OnRoundEnd(const RoundRecord& round, const RaceProgress& race) {
  progress_.Event(RoundText(round, race));
  Show(race);
}

void SearchProgress::OnRaceEnd(double trials_s, double own_s) {
  progress_.Event(fmt::format("trials took {}, the search itself {} ({:.1f} %)",
                              FormatSeconds(trials_s), FormatSeconds(own_s),
                              100 * own_s / trials_s));
}

StopRequest SearchProgress::stop_requested() {
  Show(last_);
  switch (RequestedStop()) {
    case StopLevel::kNone:
      return StopRequest::kNone;
    case StopLevel::kDrain:
      return StopRequest::kDrain;
    case StopLevel::kCancel:
      return StopRequest::kCancel;
  }
  return StopRequest::kNone;
}

void SearchProgress::Show(const RaceProgress& race) {
  last_ = race;
  if (race.round == 0) return;
  progress_.Update({.label = fmt::format("round {}, {} racing", race.round, race.racing),
                    .done = race.visits,
                    .failed = race.failed,
                    .running = 1,
                    .best = race.best_tokens_per_s > 0
                                ? fmt::format("{:.0f} tokens/s", race.best_tokens_per_s)
                                : ""});
}

}  // namespace trimtab
