// The sentences of a report, from a search's result.
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "search/report.h"

namespace trimtab {
namespace {

/// Returns a word for what a worse score is.
std::string WorseInWords(Objective objective) {
  switch (objective) {
    case Objective::kThroughput:
    case Objective::kLatency:
      return "slower";
    case Objective::kMemory:
      return "more memory";
    case Objective::kCost:
      return "more GPU time per token";
    case Objective::kGpus:
      return "more GPUs";
  }
  return "";
}

/// Says in a clause how much is expected to be lost.
std::string LossText(const SearchResult& result, const std::string& worse) {
  const bool is = worse == "slower";
  if (!result.race.expected_loss) {
    return fmt::format("how much {} it {} than the true best is unknown: too little was measured",
                       worse, is ? "is" : "takes");
  }
  return fmt::format("it is expected to {} {:.2f} % {} than the true best", is ? "be" : "take",
                     100 * *result.race.expected_loss, worse);
}

std::vector<std::string> KeysWith(const SearchResult& result, Standing standing) {
  std::vector<std::string> keys;
  for (const size_t index : result.race.With(standing)) {
    keys.push_back(result.candidates[index].key);
  }
  return keys;
}

std::vector<Finding> Limits(const SearchResult& result) {
  std::vector<Finding> limits;
  if (result.race.end == RaceEnd::kNotRun || !result.recommendation.measured) {
    limits.push_back({"nothing was measured: the prediction decides"});
  }
  if (result.serving && !result.serving->relaxations.empty()) {
    limits.push_back(
        {fmt::format("nothing meets the requirements: this comes closest; it would "
                     "meet {}",
                     fmt::join(result.serving->relaxations, ", "))});
  }
  for (const std::string& unmet : result.unmet) {
    limits.push_back({"it does not meet --require " + unmet});
  }
  if (!result.partial_reason.empty()) {
    limits.push_back({"not settled yet: " + result.partial_reason});
  }
  return limits;
}

std::vector<Finding> Takes(const SearchResult& result) {
  std::vector<Finding> takes;
  if (result.training) {
    std::string text = fmt::format("{} tokens take {} days", ShortCount(result.tokens),
                                   ShortCount(result.training->hours / 24, /*digits=*/3));
    if (const auto& price = result.training->price) {
      text += fmt::format(" and cost {}", ShortCount(*price));
    }
    takes.push_back({text + fmt::format(" ({})", Name(result.recommended().figure.trust))});
  }
  if (!result.serving) return takes;
  if (const auto& price = result.serving->price_per_million) {
    takes.push_back({fmt::format("a million output tokens cost {:.4g}", *price)});
  }
  if (const auto& rise = result.serving->perplexity_rise) {
    takes.push_back({fmt::format("perplexity {:.5g}x the original weights'", *rise)});
  }
  return takes;
}

/// Says how the race ended.
std::vector<Finding> EndOf(const SearchResult& result, const std::string& worse) {
  const RaceRules& rules = result.rules;
  const std::string loss = LossText(result, worse);
  switch (result.race.end) {
    case RaceEnd::kNotRun:
      return {};
    case RaceEnd::kSeparated:
      return {{fmt::format("it is ahead of every other ({:.0f} % sure)", 100 * rules.confidence)}};
    case RaceEnd::kTie:
      return {{fmt::format(
                   "a tie: these are within {:.3g} % of it, and it needs the least memory of them",
                   100 * rules.indifference),
               KeysWith(result, Standing::kTied)}};
    case RaceEnd::kSmallLoss:
      return {{fmt::format("others may be as fast, but {}: too little for further visits", loss)}};
    case RaceEnd::kOpen:
    case RaceEnd::kRounds:
      if (result.race.best) return {{loss}};
  }
  return {};
}

std::string AccuracyText(const Accuracy& accuracy) {
  if (accuracy.proved == 0) return "";
  std::string text = fmt::format(
      "predictions off by {:.1f} % in the median, {:.1f} % at most, at equal machine speed ({} "
      "measured)",
      100 * accuracy.median_step_time_error, 100 * accuracy.max_step_time_error, accuracy.proved);
  if (accuracy.max_peak_mem_error) {
    text += fmt::format("; peak memory by at most {:.1f} %", 100 * *accuracy.max_peak_mem_error);
  }
  return text;
}

std::vector<Finding> Decided(const SearchResult& result, const std::string& worse) {
  std::vector<Finding> decided = EndOf(result, worse);
  if (std::vector<std::string> racing = KeysWith(result, Standing::kRacing); !racing.empty()) {
    decided.push_back({"not told apart from it yet", std::move(racing)});
  }
  if (const Recommendation& choice = result.recommendation; choice.contender) {
    const RankingRow& row = result.ranking[*choice.contender];
    decided.push_back({fmt::format("worth measuring next, expected to be {:.1f} % better",
                                   100 * choice.contender_gain),
                       {result.candidates[row.candidate].key}});
  }
  return decided;
}

std::vector<Finding> TrustIn(const SearchResult& result) {
  std::vector<Finding> trust;
  for (const std::string& text : {AccuracyText(result.accuracy), MachineSpeedText(result),
                                  ProbeNote(result), StragglerNote(result)}) {
    if (!text.empty()) trust.push_back({text});
  }
  const auto failed = std::ranges::count(result.ranking, RowState::kFailed, &RankingRow::state);
  if (failed > 0) {
    trust.push_back({fmt::format("{} failed; the ranking says why", Counted(failed, "candidate"))});
  }
  return trust;
}

}  // namespace

Findings MakeFindings(const SearchResult& result) {
  const std::string worse = WorseInWords(result.rules.objective);
  return {.limits = Limits(result),
          .takes = Takes(result),
          .decided = Decided(result, worse),
          .trust = TrustIn(result),
          .worse = worse};
}

std::string MachineSpeedText(const SearchResult& result) {
  if (!result.race.fit || !result.race.fit->probed()) return "";
  const RaceFit& fit = *result.race.fit;
  return fmt::format("this machine ran at {:.2f} to {:.2f} of its {} speed during the search",
                     fit.speed().low, fit.speed().high, fit.calibrated() ? "calibrated" : "median");
}

std::string ProbeNote(const SearchResult& result) {
  if (!result.race.fit || !result.race.fit->probed()) return "";
  std::string note;
  if (!result.race.fit->stands_for_steps()) {
    note = fmt::format(
        "the machine's speed wandered, but steps followed only {:.0f} % of what the probe saw",
        100 * result.race.fit->exponent());
  }
  for (const Mode& mode : result.race.fit->throttled()) {
    note += fmt::format("{}{} ran at another speed beside the others than in the calibration",
                        note.empty() ? "" : "; ", InWords(mode));
  }
  return note;
}

std::string StragglerNote(const SearchResult& result) {
  int64_t visits = 0;
  int64_t slow = 0;
  std::set<std::string> places;
  for (const CandidateRecord& candidate : result.candidates) {
    for (const VisitRecord& visit : candidate.visits) {
      ++visits;
      if (!visit.measurement.stragglers.empty()) ++slow;
      for (const Straggler& each : visit.measurement.stragglers) places.insert(PlaceOf(each));
    }
  }
  if (slow == 0) return "";
  return fmt::format(
      "{} of {} visits waited for a rank slower than the others, and count little: {}", slow,
      visits, fmt::join(places, "; "));
}

}  // namespace trimtab
