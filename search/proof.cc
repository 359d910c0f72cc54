#include "search/proof.h"

#include <optional>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "profiler/other_work.h"
#include "search/race/race_round.h"
#include "search/race/retry.h"
#include "search/search_result.h"

namespace trimtab {
namespace {

bool EndedDisturbed(const CandidateRecord& candidate) {
  const std::vector<StepBlock>& blocks = candidate.visits.back().measurement.blocks;
  return !blocks.empty() && blocks.back().taken > kDisturbedShare;
}

}  // namespace

Proof::Proof(const Workload& workload, const SearchOptions& options, Clock::time_point start,
             Study& study, TrialRunner& runner, SearchEvents& events)
    : workload_(workload),
      options_(options),
      start_(start),
      study_(study),
      runner_(runner),
      events_(events),
      references_(ReferencesOf(study)),
      seed_(study.seed()) {}

std::string Proof::Run() {
  if (options_.race.prove_count == 0) return "";
  const double began_s = elapsed_s();
  std::string stopped_by = TakeSteps();
  if (trials_s_ > 0) events_.OnRaceEnd(trials_s_, elapsed_s() - began_s - trials_s_);
  return stopped_by;
}

std::string Proof::TakeSteps() {
  Judge();
  while (true) {
    const RaceStep step = NextStep(options_.race, race_, candidates_, study_.Rounds());
    FinishRounds(step.visit.has_value());
    if (step.unexplained || EnvironmentFails(candidates_)) BlameEnvironment();
    if (!step.visit && step.begin_round.empty()) return "";
    if (events_.stop_requested() != StopRequest::kNone) return "stopped on request";
    if (options_.budget_s > 0 && elapsed_s() >= options_.budget_s) {
      return fmt::format("the budget of {} was used up", FormatSeconds(options_.budget_s));
    }
    if (options_.gpu_minutes > 0 && rank_seconds_ >= 60 * options_.gpu_minutes) {
      return fmt::format("the {:g} GPU minutes allowed were used up", options_.gpu_minutes);
    }
    if (options_.most_visits > 0 && Visits() >= options_.most_visits) {
      return fmt::format("the {} visits allowed were used up", options_.most_visits);
    }
    if (step.visit) {
      Visit(*step.visit, study_.Rounds().back().id);
    } else {
      BeginRound(step.begin_round);
    }
  }
}

void Proof::Judge() {
  candidates_ = study_.Candidates();
  workload_.Judge(options_.race.objective, candidates_);
  PruneHopeless();
  race_ = JudgeRace(options_.race, candidates_, references_);
  ApplyRace(race_, seed_, candidates_);
}

void Proof::PruneHopeless() {
  std::vector<std::pair<int64_t, std::string>> pruned;
  for (const auto& [index, why] : FindHopeless(candidates_)) {
    candidates_[index].pruned_by = kMemory;
    candidates_[index].pruned_why = why;
    pruned.emplace_back(candidates_[index].id, why);
  }
  if (!pruned.empty()) study_.PruneForMemory(pruned);
}

void Proof::BeginRound(const std::vector<size_t>& order) {
  std::vector<int64_t> ids;
  for (const size_t index : order) ids.push_back(candidates_[index].id);
  // Those that are left out for good need no worker any more.
  const auto began = Clock::now();
  for (const size_t index : race_.With(Standing::kBehind)) {
    runner_.Release(candidates_[index].key);
  }
  NoteTrials(began);
  study_.BeginRound(ids);
}

void Proof::FinishRounds(bool open) {
  if (!race_.fit) return;
  for (const RoundRecord& round : study_.Rounds()) {
    const auto speed = race_.fit->speed_of_round().find(round.id);
    if (round.speed || speed == race_.fit->speed_of_round().end()) continue;
    if (open && round.id == study_.Rounds().back().id) continue;
    study_.FinishRound(round.id, speed->second);
    events_.OnRoundEnd(study_.Rounds().at(static_cast<size_t>(round.id - 1)), Progress());
  }
}

void Proof::Visit(size_t index, int64_t round) {
  const CandidateRecord& candidate = candidates_[index];
  const Attempt attempt = study_.BeginAttempt(candidate.id, round);
  events_.OnVisitStart(candidate, Progress());
  TrialRequest request = options_.RequestFor(workload_.JobOf(candidate, options_.visit),
                                             workload_.cluster(), attempt.token);
  request.study = study_.uuid();
  request.time_limit_s *= TimeLimitFactor(candidate);
  request.memory_bytes = candidate.prediction()->peak_mem_bytes * candidate.run.layout.world_size();
  request.give_up_waiting = [this] {
    return events_.stop_requested() != StopRequest::kNone ||
           (options_.budget_s > 0 && elapsed_s() >= options_.budget_s);
  };
  const auto asked = Clock::now();
  if (disturbed_) {
    quiet_wait_.Wait([this] { return events_.stop_requested() != StopRequest::kNone; });
  }
  const auto began = Clock::now();
  const TrialOutcome outcome =
      runner_.Run(request, [this] { return events_.stop_requested() == StopRequest::kCancel; });
  NoteTrials(asked);
  rank_seconds_ += static_cast<double>(candidate.run.layout.world_size()) *
                   std::chrono::duration<double>(Clock::now() - began).count();
  study_.FinishAttempt(attempt, outcome);
  if (outcome.state == TrialState::kInterrupted) {
    throw EnvironmentError(fmt::format("{} could not be started: {}; --resume goes on with {}",
                                       candidate.key, outcome.message, study_.path()));
  }
  Judge();
  disturbed_ = outcome.state == TrialState::kDone && EndedDisturbed(candidates_[index]);
  if (outcome.state == TrialState::kDone) NoteStragglers(candidates_[index]);
  events_.OnVisitEnd(candidates_[index], outcome, Progress());
}

void Proof::BlameEnvironment() {
  throw EnvironmentError(fmt::format(
      "candidates fail, and none runs beside them: no candidate is to blame; the first, {}; "
      "--resume goes on with {}",
      study_.ForgiveSuspects(), study_.path()));
}

void Proof::NoteStragglers(const CandidateRecord& candidate) {
  std::set<std::string> hosts;
  for (const Straggler& each : candidate.visits.back().measurement.stragglers) {
    hosts.insert(each.host);
  }
  for (const std::string& host : hosts) runner_.NoteSlow(host);
}

void Proof::NoteTrials(Clock::time_point since) {
  trials_s_ += std::chrono::duration<double>(Clock::now() - since).count();
}

RaceProgress Proof::Progress() const {
  RaceProgress progress;
  progress.elapsed_s = elapsed_s();
  const std::vector<RoundRecord> rounds = study_.Rounds();
  if (!rounds.empty()) progress.round = rounds.back().id;
  progress.visits = Visits();
  progress.failed = static_cast<int64_t>(race_.With(Standing::kFailed).size());
  if (!race_.best) return progress;
  progress.racing = 1 + static_cast<int64_t>(race_.With(Standing::kRacing).size());
  progress.speed = race_.fit->speed_of_round().rbegin()->second.median;
  progress.best_tokens_per_s = candidates_[*race_.best].measured->tokens_per_s;
  progress.best_layout = candidates_[*race_.best].key;
  return progress;
}

int64_t Proof::Visits() const {
  int64_t visits = 0;
  for (const CandidateRecord& candidate : candidates_) {
    visits += static_cast<int64_t>(candidate.visits.size()) + candidate.failures +
              candidate.suspects + candidate.losses;
  }
  return visits;
}

double Proof::elapsed_s() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

}  // namespace trimtab
