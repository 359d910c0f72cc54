// StudyState: a study in memory, read once, to which every change is applied.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "search/space/objective.h"
#include "search/study/candidate_record.h"
#include "search/study/sqlite.h"

namespace trimtab {

/// The goal of a search over a study.
struct SearchGoal {
  Objective objective = Objective::kThroughput;
  int64_t prove_count = 0;
  double indifference = 0.01;
  int64_t most_rounds = 40;

  bool operator==(const SearchGoal&) const = default;
};

/// A trial that was started.
struct AttemptRecord {
  int64_t id = 0;  // from 1, in order of starting
  int64_t candidate = 0;
  int64_t round = 0;
  std::string token{};
  std::optional<TrialState> state{};  // none while it runs
  std::string message{};

  /// True if a result may still come: of one that runs, or was given up when its driver was killed.
  bool IsOpenTo(TrialState result) const {
    return !state || (*state == TrialState::kInterrupted && result != TrialState::kFailed);
  }
};

/// The end of an attempt.
struct AttemptEnd {
  int64_t attempt = 0;
  TrialState state{};
  std::string message{};
  std::optional<Measurement> measurement{};
  double at_s = 0;  // since the study was made
};

struct StudyState {
  std::string uuid;
  SearchGoal goal;
  std::string stopped_by;
  bool enumerated = false;
  double gap = 0;
  PrunedCounts pruned;
  std::vector<CandidateRecord> candidates;  // by id
  std::vector<RoundRecord> rounds;          // by id, from 1
  std::vector<AttemptRecord> attempts;      // by id, from 1

  /// nullptr where there is none.
  CandidateRecord* FindCandidate(int64_t id);
  AttemptRecord* FindAttempt(std::string_view token);
  AttemptRecord& AttemptOf(int64_t id) { return attempts.at(static_cast<size_t>(id - 1)); }

  /// Attempts that failed, and none has run since: the environment may be to blame.
  std::vector<const AttemptRecord*> Suspects() const;

  /// Notes the ends, and counts anew.
  void Apply(std::vector<AttemptEnd> ends);
  /// Counts what attempts say of each candidate.
  void CountTrials();

 private:
  /// The last attempt that was measured; 0 = none.
  int64_t LastDone() const;
};

/// Reads all of a study. Throws StorageError naming the file and what is wrong in it.
StudyState ReadStudyState(Database& database);

[[noreturn]] void ThrowDamagedStudy(const std::string& path, const std::string& detail);

}  // namespace trimtab
