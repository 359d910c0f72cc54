// Writing a study: candidates, predictions, rounds, attempts and measurements. A change is applied
// to what is known in memory once it is on the disk.

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "engine/families/load_config.h"
#include "engine/infer/serving_json.h"
#include "search/study/study.h"
#include "search/study/study_schema.h"

namespace trimtab {
namespace {

/// How long a resumed driver waits for the worker of a killed one to be gone.
constexpr double kLeftoverWaitSeconds = 10;
constexpr double kWorkerWaitSeconds = 30;

/// The number that a statement returns in its only row.
double OnlyNumberOf(Statement& statement) {
  const bool row = statement.Step();
  TRIMTAB_ASSERT(row, "a statement returned no row");
  const double number = statement.Real(0);
  const bool another = statement.Step();
  TRIMTAB_ASSERT(!another, "a statement returned two rows");
  return number;
}

}  // namespace

void Study::StorePrediction(int64_t candidate, const char* tier, const Prediction& prediction) {
  database_->Prepare("INSERT INTO predictions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")
      .Bind(1, candidate)
      .Bind(2, std::string(tier))
      .Bind(3, prediction.step_time_s)
      .Bind(4, prediction.tokens_per_s)
      .Bind(5, prediction.peak_mem_bytes)
      .Bind(6, std::string(Name(prediction.trust)))
      .Bind(7, ToJson(prediction).dump())
      .Run();
}

void Study::StoreCandidates(const std::vector<CandidateRecord>& candidates,
                            const PrunedCounts& pruned, double gap) {
  std::vector<CandidateRecord> stored;
  database_->Transaction([&] {
    Statement insert = database_->Prepare(
        "INSERT INTO candidates (key, config, pruned_by, pruned_why) VALUES (?1, ?2, ?3, ?4)");
    for (const CandidateRecord& candidate : candidates) {
      const nlohmann::json config =
          candidate.serving ? ToJson(*candidate.serving) : ToJson(candidate.run);
      insert.Bind(1, candidate.key).Bind(2, config.dump());
      if (!candidate.pruned_by.empty()) {
        insert.Bind(3, candidate.pruned_by).Bind(4, candidate.pruned_why);
      }
      insert.Run();
      CandidateRecord& record = stored.emplace_back();
      record.id = database_->last_insert_id();
      record.key = candidate.key;
      record.run = candidate.run;
      record.serving = candidate.serving;
      record.pruned_by = candidate.pruned_by;
      record.pruned_why = candidate.pruned_why;
      record.closed_form = candidate.closed_form;
      if (record.closed_form) {
        const char* const tier = candidate.serving ? "simulation" : "closed_form";
        StorePrediction(record.id, tier, *record.closed_form);
      }
    }
    Statement count = database_->Prepare("INSERT INTO pruned VALUES (?1, ?2)");
    for (const auto& [rule, candidates_pruned] : pruned) {
      count.Bind(1, rule).Bind(2, candidates_pruned).Run();
    }
    database_->Prepare("UPDATE study SET enumerated = 1, gap = ?1").Bind(1, gap).Run();
  });
  std::move(stored.begin(), stored.end(), std::back_inserter(state_.candidates));
  state_.pruned.insert(state_.pruned.end(), pruned.begin(), pruned.end());
  state_.enumerated = true;
  state_.gap = gap;
}

void Study::ForgetSpace() {
  if (!state_.attempts.empty() || !state_.rounds.empty()) return;
  database_->Transaction([&] {
    for (const char* table : {"predictions", "candidates", "pruned"}) {
      database_->Execute(fmt::format("DELETE FROM {}", table));
    }
    database_->Execute("UPDATE study SET enumerated = 0, gap = 0");
  });
  state_.candidates.clear();
  state_.pruned.clear();
  state_.enumerated = false;
  state_.gap = 0;
}

void Study::StoreDryRun(int64_t candidate, const Prediction& prediction,
                        const std::string& pruned_by, const std::string& pruned_why) {
  database_->Transaction([&] {
    StorePrediction(candidate, "dry_run", prediction);
    if (pruned_by.empty()) return;
    database_->Prepare("UPDATE candidates SET pruned_by = ?2, pruned_why = ?3 WHERE id = ?1")
        .Bind(1, candidate)
        .Bind(2, pruned_by)
        .Bind(3, pruned_why)
        .Run();
  });
  CandidateRecord& record = *state_.FindCandidate(candidate);
  record.dry_run = prediction;
  if (pruned_by.empty()) return;
  record.pruned_by = pruned_by;
  record.pruned_why = pruned_why;
}

void Study::PruneForMemory(const std::vector<std::pair<int64_t, std::string>>& candidates) {
  database_->Transaction([&] {
    Statement update = database_->Prepare(
        "UPDATE candidates SET pruned_by = 'memory', pruned_why = ?2 WHERE id = ?1");
    for (const auto& [id, why] : candidates) update.Bind(1, id).Bind(2, why).Run();
  });
  for (const auto& [id, why] : candidates) {
    CandidateRecord& record = *state_.FindCandidate(id);
    record.pruned_by = "memory";
    record.pruned_why = why;
  }
}

int64_t Study::BeginRound(const std::vector<int64_t>& candidates) {
  RoundRecord round = {.id = static_cast<int64_t>(state_.rounds.size()) + 1,
                       .candidates = candidates};
  database_->Transaction([&] {
    Statement insert = database_->Prepare(
        "INSERT INTO rounds (id, candidates, started_at) VALUES (?1, ?2, " TRIMTAB_SQL_NOW
        ") RETURNING " +
        SecondsOf("started_at"));
    insert.Bind(1, round.id).Bind(2, nlohmann::json(candidates).dump());
    round.at_s = OnlyNumberOf(insert);
  });
  state_.rounds.push_back(round);
  return round.id;
}

void Study::FinishRound(int64_t round, const RaceSpeed& speed) {
  double ended_s = 0;
  database_->Transaction([&] {
    Statement update = database_->Prepare(
        "UPDATE rounds SET finished_at = " TRIMTAB_SQL_NOW
        ", speed = ?2, speed_low = ?3, speed_high = ?4 WHERE id = ?1 RETURNING " +
        SecondsOf("finished_at"));
    update.Bind(1, round).Bind(2, speed.median).Bind(3, speed.low).Bind(4, speed.high);
    ended_s = OnlyNumberOf(update);
  });
  RoundRecord& record = state_.rounds.at(static_cast<size_t>(round - 1));
  record.seconds = ended_s - record.at_s;
  record.speed = speed;
}

Attempt Study::BeginAttempt(int64_t candidate, int64_t round) {
  AttemptRecord record = {.id = static_cast<int64_t>(state_.attempts.size()) + 1,
                          .candidate = candidate,
                          .round = round};
  record.token = fmt::format("{}-{}", uuid(), record.id);
  database_->Transaction([&] {
    database_
        ->Prepare("INSERT INTO attempts VALUES (?1, ?2, ?3, ?5, " TRIMTAB_SQL_NOW
                  ", NULL, NULL, '', ?4)")
        .Bind(1, record.id)
        .Bind(2, candidate)
        .Bind(3, record.token)
        .Bind(4, round)
        .Bind(5, std::string(kRunning))
        .Run();
  });
  state_.attempts.push_back(record);
  return {.id = record.id, .token = record.token};
}

void Study::FinishAttempt(const Attempt& attempt, const TrialOutcome& outcome) {
  const std::vector<TrialResult> results = ReadResults(results_path());
  std::vector<AttemptEnd> ends;
  database_->Transaction([&] {
    ends = StoreResults(results);
    database_->Prepare("UPDATE attempts SET exit_code = ?2 WHERE id = ?1")
        .Bind(1, attempt.id)
        .Bind(2, int64_t{outcome.exit_code})
        .Run();
    const bool has_line = std::any_of(
        ends.begin(), ends.end(), [&](const AttemptEnd& end) { return end.attempt == attempt.id; });
    if (has_line || state_.AttemptOf(attempt.id).state) return;
    ends.push_back(
        StoreEnd({.attempt = attempt.id, .state = outcome.state, .message = outcome.message}));
  });
  state_.Apply(std::move(ends));
}

AttemptEnd Study::StoreEnd(AttemptEnd end) {
  Statement update = database_->Prepare(
      "UPDATE attempts SET state = ?2, message = ?3, finished_at = " TRIMTAB_SQL_NOW
      " WHERE id = ?1 RETURNING " +
      SecondsOf("finished_at"));
  update.Bind(1, end.attempt).Bind(2, Name(end.state)).Bind(3, end.message);
  end.at_s = OnlyNumberOf(update);
  if (!end.measurement) return end;
  const Measurement& measurement = *end.measurement;
  database_->Prepare("INSERT INTO measurements VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
      .Bind(1, end.attempt)
      .Bind(2, measurement.step_time_s)
      .Bind(3, measurement.step_time_mad_s)
      .Bind(4, measurement.tokens_per_s)
      .Bind(5, measurement.peak_mem_bytes)
      .Bind(6, ToJson(measurement).dump())
      .Run();
  return end;
}

std::vector<AttemptEnd> Study::StoreResults(const std::vector<TrialResult>& results) {
  std::vector<AttemptEnd> ends;
  for (const TrialResult& result : results) {
    if (result.state == TrialState::kInterrupted) continue;  // it never began
    const AttemptRecord* const attempt = state_.FindAttempt(result.attempt);
    if (attempt == nullptr || !attempt->IsOpenTo(result.state)) continue;
    const bool serves = state_.FindCandidate(attempt->candidate)->serving.has_value();
    if (result.measurement && result.measurement->service.has_value() != serves) continue;
    const bool twice = std::any_of(ends.begin(), ends.end(), [&](const AttemptEnd& end) {
      return end.attempt == attempt->id;
    });
    if (twice) continue;
    ends.push_back(StoreEnd({.attempt = attempt->id,
                             .state = result.state,
                             .message = result.message,
                             .measurement = result.measurement}));
  }
  return ends;
}

std::string Study::ForgiveSuspects() {
  const std::vector<const AttemptRecord*> suspects = state_.Suspects();
  if (suspects.empty()) return "";
  const AttemptRecord& first = *suspects.front();
  const std::string what = fmt::format("{}: {}: {}", state_.FindCandidate(first.candidate)->key,
                                       Name(*first.state), first.message);
  database_->Transaction([&] {
    Statement update = database_->Prepare("UPDATE attempts SET state = ?2 WHERE id = ?1");
    for (const AttemptRecord* each : suspects) {
      update.Bind(1, each->id).Bind(2, Name(TrialState::kInterrupted)).Run();
    }
  });
  for (const AttemptRecord* each : suspects) {
    state_.AttemptOf(each->id).state = TrialState::kInterrupted;
  }
  state_.CountTrials();
  return what;
}

int64_t Study::IngestResults() {
  const std::vector<TrialResult> results = ReadResults(results_path());
  std::vector<AttemptEnd> ends;
  database_->Transaction([&] { ends = StoreResults(results); });
  const auto stored = static_cast<int64_t>(ends.size());
  state_.Apply(std::move(ends));
  return stored;
}

bool Study::WorkersGone() const {
  return trimtab::WorkersGone(results_path(), kLeftoverWaitSeconds);
}

int64_t Study::Recover() {
  // Whoever holds the file is a worker that a killed driver left; its line may still come.
  AwaitWorkersGone(results_path(), kWorkerWaitSeconds);
  const int64_t ingested = IngestResults();
  std::vector<AttemptEnd> ends;
  database_->Transaction([&] {
    for (const AttemptRecord& attempt : state_.attempts) {
      if (attempt.state) continue;
      ends.push_back(StoreEnd({.attempt = attempt.id,
                               .state = TrialState::kInterrupted,
                               .message = "the search was killed"}));
    }
  });
  state_.Apply(std::move(ends));
  return ingested;
}

std::vector<std::pair<std::string, std::string>> Study::Versions() const {
  std::vector<std::pair<std::string, std::string>> versions;
  Statement query =
      database_->Prepare("SELECT component, version FROM versions ORDER BY first_used_at, 1");
  while (query.Step()) versions.emplace_back(query.Text(0), query.Text(1));
  return versions;
}

}  // namespace trimtab
