#include "search/study/study_state.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "search/study/study.h"
#include "tests/search/search_fakes.h"
#include "tests/search/study/study_fixtures.h"

namespace trimtab {
namespace {

/// A state with two candidates, whose attempts ended so, one after the other.
StudyState After(const std::vector<std::pair<int64_t, std::optional<TrialState>>>& attempts) {
  StudyState state;
  for (const int64_t id : {1, 2}) state.candidates.emplace_back().id = id;
  for (const auto& [candidate, end] : attempts) {
    const auto id = static_cast<int64_t>(state.attempts.size()) + 1;
    state.attempts.push_back({.id = id,
                              .candidate = candidate,
                              .round = 1,
                              .token = fmt::format("t-{}", id),
                              .state = end,
                              .message = fmt::format("message {}", id)});
  }
  state.CountTrials();
  return state;
}

TEST(StudyState, AFailureIsSuspectUntilAnotherTrialRuns) {
  const StudyState open = After({{2, TrialState::kDone}, {1, TrialState::kCrashed}});
  EXPECT_EQ(open.candidates[0].suspects, 1);
  EXPECT_EQ(open.candidates[0].failures, 0);
  ASSERT_EQ(open.Suspects().size(), 1U);
  EXPECT_EQ(open.Suspects()[0]->id, 2);
  const StudyState over =
      After({{1, TrialState::kCrashed}, {2, TrialState::kDone}, {1, std::nullopt}});
  EXPECT_EQ(over.candidates[0].suspects, 0);
  EXPECT_EQ(over.candidates[0].failures, 1);
  EXPECT_TRUE(over.Suspects().empty());
}

TEST(StudyState, WantOfMemoryIsTheCandidatesOwn) {
  for (const TrialState own : {TrialState::kOutOfMemory, TrialState::kNumeric}) {
    const StudyState state = After({{1, own}});
    EXPECT_EQ(state.candidates[0].failures, 1);
    EXPECT_EQ(state.candidates[0].suspects, 0);
    EXPECT_TRUE(state.Suspects().empty());
  }
}

TEST(StudyState, LossesCountAgainstACandidateThatHasNotRunSince) {
  using enum TrialState;
  const TrialTally open = After({{1, kLost}, {1, kPreempted}}).candidates[0];
  EXPECT_EQ(open.losses, 2);
  EXPECT_EQ(open.open_losses, 1) << "others may get its nodes as often as they like";
  EXPECT_EQ(open.own_losses, 0);
  const TrialTally own = After({{1, kLost}, {2, kDone}}).candidates[0];
  EXPECT_EQ(own.own_losses, 1);
  EXPECT_EQ(own.open_losses, 0);
  const TrialTally ran = After({{1, kLost}, {1, kDone}}).candidates[0];
  EXPECT_EQ(ran.losses, 1);
  EXPECT_EQ(ran.own_losses + ran.open_losses, 0);
}

TEST(StudyState, TheLastFailureIsNamedBeforeAnyLoss) {
  using enum TrialState;
  const TrialTally tally =
      After({{1, kLost}, {1, kCrashed}, {1, kTimedOut}, {1, kPreempted}}).candidates[0];
  EXPECT_EQ(tally.last_state, kTimedOut);
  EXPECT_EQ(tally.last_message, "message 3");
  EXPECT_EQ(After({{1, kLost}, {1, kPreempted}}).candidates[0].last_state, kPreempted);
  for (const auto silent : {std::optional(kCancelled), std::optional(kInterrupted),
                            std::optional(kDone), std::optional<TrialState>()}) {
    const TrialTally none = After({{1, silent}}).candidates[0];
    EXPECT_EQ(none.last_state, std::nullopt);
    EXPECT_EQ(none.failures + none.suspects + none.losses, 0);
  }
}

/// All that is known of a study, to compare.
nlohmann::json Everything(const Study& study) {
  nlohmann::json all = {{"uuid", study.uuid()},
                        {"goal", Name(study.goal().objective)},
                        {"prove", study.goal().prove_count},
                        {"stopped_by", study.stopped_by()},
                        {"enumerated", study.enumerated()},
                        {"gap", study.gap()},
                        {"pruned", study.Pruned()}};
  for (const CandidateRecord& each : study.Candidates()) {
    nlohmann::json json = {
        {"id", each.id},
        {"key", each.key},
        {"run", ToJson(each.run)},
        {"pruned", {each.pruned_by, each.pruned_why}},
        {"counts", {each.failures, each.suspects, each.losses, each.own_losses, each.open_losses}},
        {"last", {each.last_state ? Name(*each.last_state) : "", each.last_message}}};
    if (each.closed_form) json["closed_form"] = ToJson(*each.closed_form);
    if (each.dry_run) json["dry_run"] = ToJson(*each.dry_run);
    for (const VisitRecord& visit : each.visits) {
      json["visits"].push_back({visit.attempt, visit.round, visit.at_s, ToJson(visit.measurement)});
    }
    all["candidates"].push_back(json);
  }
  for (const RoundRecord& each : study.Rounds()) {
    nlohmann::json json = {each.id, each.candidates, each.at_s, each.seconds};
    if (each.speed) json.push_back({each.speed->median, each.speed->low, each.speed->high});
    all["rounds"].push_back(json);
  }
  return all;
}

/// Does to a study what searches do, in any order.
class Events {
 public:
  explicit Events(Study& study) : study_(study) {}

  void Next() {
    switch (generator_() % 9) {
      case 0:
        round_ = study_.BeginRound({1 + Below(2), 1 + Below(3)});
        break;
      case 1:
      case 2:
      case 3:
        if (round_ > 0) attempts_.push_back(study_.BeginAttempt(1 + Below(3), round_));
        break;
      case 4:
        if (!attempts_.empty()) Append(OneAttempt());
        break;
      case 5:
        if (!attempts_.empty()) {
          const TrialState ended = OneState();
          study_.FinishAttempt(OneAttempt(), {.state = ended, .message = Name(ended)});
        }
        break;
      case 6:
        if (round_ > 0) study_.FinishRound(1 + Below(round_), {.median = 1, .low = 0.5, .high = 2});
        break;
      case 7:
        Below(2) == 0 ? static_cast<void>(study_.ForgiveSuspects())
                      : static_cast<void>(study_.IngestResults());
        break;
      default:
        Rare();
    }
  }

 private:
  int64_t Below(int64_t most) {
    return static_cast<int64_t>(generator_() % static_cast<uint64_t>(most));
  }
  Attempt OneAttempt() {
    return attempts_[static_cast<size_t>(Below(static_cast<int64_t>(attempts_.size())))];
  }
  TrialState OneState() {
    using enum TrialState;
    constexpr TrialState kStates[] = {kOutOfMemory, kNumeric,   kCrashed,   kTimedOut,   kFailed,
                                      kLost,        kPreempted, kCancelled, kInterrupted};
    return kStates[Below(std::ssize(kStates))];
  }

  /// A worker's line, which may come twice, late, torn or of no attempt.
  void Append(const Attempt& attempt) {
    if (Below(3) > 0) {
      AppendDone(study_, attempt, study_.Candidates()[0].run);
      return;
    }
    ResultsFile(study_.results_path())
        .Append({.attempt = attempt.token, .state = OneState(), .message = "a line"});
    if (Below(4) == 0) std::ofstream(study_.results_path(), std::ios::app) << R"({"attempt": "to)";
  }

  void Rare() {
    switch (Below(5)) {
      case 0:
        study_.Recover();
        break;
      case 1:
        study_.PruneForMemory({{1 + Below(3), "would need more"}});
        break;
      case 2:
        study_.NoteStop("stopped on request");
        break;
      case 3:
        study_.SetGoal({.objective = Objective::kMemory, .prove_count = Below(9)});
        break;
      default:
        if (!dry_run_) {
          study_.StoreDryRun(2, FakePredictor().DryRun(study_.Candidates()[1].run), "", "");
        }
        dry_run_ = true;
    }
  }

  Study& study_;
  std::mt19937_64 generator_{7};
  int64_t round_ = 0;
  std::vector<Attempt> attempts_;
  bool dry_run_ = false;
};

// A driver's state equals its study's file after any events: another driver would go on alike.
TEST(StudyState, IsWhatTheFileSays) {
  const std::string path = ScratchPath("state.db");
  const auto study = Study::Open(path, TinyProblem(), {});
  EXPECT_EQ(Everything(*study), Everything(*Study::OpenExisting(path)));
  study->StoreCandidates(SomeCandidates(), {{"unlisted", 3}}, 0.25);
  study->ForgetSpace();
  EXPECT_EQ(Everything(*study), Everything(*Study::OpenExisting(path)));
  study->StoreCandidates(SomeCandidates(), {{"unlisted", 4}}, 0.5);
  Events events(*study);
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    events.Next();
    EXPECT_EQ(Everything(*study), Everything(*Study::OpenExisting(path))) << "after event " << i;
  }
  int64_t visits = 0;
  for (const CandidateRecord& each : study->Candidates()) visits += std::ssize(each.visits);
  EXPECT_GT(visits, 5);
}

}  // namespace
}  // namespace trimtab
