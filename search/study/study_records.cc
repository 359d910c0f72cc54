// The rows of a study: candidates, predictions, attempts and measurements.

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "engine/families/load_config.h"
#include "search/study/study.h"
#include "search/study/study_schema.h"

namespace trimtab {
namespace {

/// How long a resumed driver waits for the worker of a killed one to be gone.
constexpr double kLeftoverWaitSeconds = 10;
constexpr double kWorkerWaitSeconds = 30;

/// SQL: a trial ran after attempt `a` ended, so the environment was fit for it.
constexpr char kAnotherRanSince[] =
    "EXISTS (SELECT 1 FROM attempts d WHERE d.state = 'done' AND d.id > a.id)";
/// SQL: the candidate of attempt `a` has not run since.
constexpr char kNotRunSince[] =
    "NOT EXISTS (SELECT 1 FROM attempts d WHERE d.candidate_id = a.candidate_id "
    "AND d.state = 'done' AND d.id > a.id)";

/// SQL: seconds from the making of the study to the moment in `column`.
std::string SecondsOf(const char* column) {
  return fmt::format("(julianday({}) - (SELECT julianday(created_at) FROM study)) * 86400.0",
                     column);
}

/// Only figures that the program could have written: a study may have been edited since.
Measurement BelievableMeasurement(const nlohmann::json& json, const std::string& key) {
  Measurement measurement = MeasurementFromJson(json, key);
  if (const std::string fault = WhyNotNumeric(measurement); !fault.empty()) {
    throw InputError(fmt::format("{}: {}", key, fault));
  }
  return measurement;
}

Prediction BelievablePrediction(const nlohmann::json& json, const std::string& key) {
  Prediction prediction = PredictionFromJson(json, key);
  if (prediction.step_time_s > 0) return prediction;
  throw InputError(fmt::format("{}: a step is predicted to take no time", key));
}

}  // namespace

void Study::StorePrediction(int64_t candidate, const char* tier, const Prediction& prediction) {
  database_->Prepare("INSERT INTO predictions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")
      .Bind(1, candidate)
      .Bind(2, std::string(tier))
      .Bind(3, prediction.step_time_s)
      .Bind(4, prediction.tokens_per_s)
      .Bind(5, prediction.peak_mem_bytes)
      .Bind(6, prediction.trust)
      .Bind(7, ToJson(prediction).dump())
      .Run();
}

void Study::StoreCandidates(const std::vector<CandidateRecord>& candidates,
                            const PrunedCounts& pruned, double gap) {
  database_->Transaction([&] {
    Statement insert = database_->Prepare(
        "INSERT INTO candidates (key, run, pruned_by, pruned_why) VALUES (?1, ?2, ?3, ?4)");
    for (const CandidateRecord& candidate : candidates) {
      insert.Bind(1, candidate.key).Bind(2, ToJson(candidate.run).dump());
      if (!candidate.pruned_by.empty()) {
        insert.Bind(3, candidate.pruned_by).Bind(4, candidate.pruned_why);
      }
      insert.Run();
      if (candidate.closed_form) {
        StorePrediction(database_->last_insert_id(), "closed_form", *candidate.closed_form);
      }
    }
    Statement count = database_->Prepare("INSERT INTO pruned VALUES (?1, ?2)");
    for (const auto& [rule, candidates_pruned] : pruned) {
      count.Bind(1, rule).Bind(2, candidates_pruned).Run();
    }
    database_->Prepare("UPDATE study SET enumerated = 1, gap = ?1").Bind(1, gap).Run();
  });
}

double Study::gap() const {
  Statement query = database_->Prepare("SELECT gap FROM study");
  return query.Step() ? query.Real(0) : 0;
}

void Study::ForgetSpace() {
  if (database_->QueryInt("SELECT count(*) FROM attempts") > 0) return;
  if (database_->QueryInt("SELECT count(*) FROM rounds") > 0) return;
  database_->Transaction([&] {
    for (const char* table : {"predictions", "candidates", "pruned"}) {
      database_->Execute(fmt::format("DELETE FROM {}", table));
    }
    database_->Execute("UPDATE study SET enumerated = 0, gap = 0");
  });
}

PrunedCounts Study::Pruned() const {
  PrunedCounts pruned;
  Statement query = database_->Prepare("SELECT rule, candidates FROM pruned ORDER BY rowid");
  while (query.Step()) pruned.emplace_back(query.Text(0), query.Int(1));
  return pruned;
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
}

void Study::PruneForMemory(const std::vector<std::pair<int64_t, std::string>>& candidates) {
  database_->Transaction([&] {
    Statement update = database_->Prepare(
        "UPDATE candidates SET pruned_by = 'memory', pruned_why = ?2 WHERE id = ?1");
    for (const auto& [id, why] : candidates) update.Bind(1, id).Bind(2, why).Run();
  });
}

int64_t Study::BeginRound(const std::vector<int64_t>& candidates) {
  int64_t round = 0;
  database_->Transaction([&] {
    round = database_->QueryInt("SELECT coalesce(max(id), 0) + 1 FROM rounds");
    database_
        ->Prepare("INSERT INTO rounds (id, candidates, started_at) VALUES (?1, ?2, " TRIMTAB_SQL_NOW
                  ")")
        .Bind(1, round)
        .Bind(2, nlohmann::json(candidates).dump())
        .Run();
  });
  return round;
}

void Study::FinishRound(int64_t round, const RaceSpeed& speed) {
  database_->Transaction([&] {
    database_
        ->Prepare("UPDATE rounds SET finished_at = " TRIMTAB_SQL_NOW
                  ", speed = ?2, speed_low = ?3, speed_high = ?4 WHERE id = ?1")
        .Bind(1, round)
        .Bind(2, speed.median)
        .Bind(3, speed.low)
        .Bind(4, speed.high)
        .Run();
  });
}

std::vector<RoundRecord> Study::Rounds() const {
  std::vector<RoundRecord> rounds;
  Statement query = database_->Prepare(fmt::format(
      "SELECT id, candidates, {}, {}, speed, speed_low, speed_high FROM rounds ORDER BY id",
      SecondsOf("started_at"), SecondsOf("finished_at")));
  const int64_t candidates = database_->QueryInt("SELECT coalesce(max(id), 0) FROM candidates");
  while (query.Step()) {
    RoundRecord& round = rounds.emplace_back();
    round.id = query.Int(0);
    const nlohmann::json ids = nlohmann::json::parse(query.Text(1), nullptr, false);
    if (!ids.is_array()) ThrowDamaged(fmt::format("round {} visits nothing", round.id));
    for (const nlohmann::json& id : ids) {
      if (!id.is_number_integer() || id < 1 || id > candidates) {
        ThrowDamaged(fmt::format("round {} visits {}", round.id, id.dump()));
      }
      round.candidates.push_back(id.get<int64_t>());
    }
    round.at_s = query.Real(2);
    if (query.IsNull(4)) continue;
    round.seconds = query.Real(3) - round.at_s;
    if (!(query.Real(4) > 0)) ThrowDamaged(fmt::format("the speed of round {}", round.id));
    round.speed = {.median = query.Real(4), .low = query.Real(5), .high = query.Real(6)};
  }
  return rounds;
}

Attempt Study::BeginAttempt(int64_t candidate, int64_t round) {
  Attempt attempt;
  database_->Transaction([&] {
    attempt.id = database_->QueryInt("SELECT coalesce(max(id), 0) + 1 FROM attempts");
    attempt.token = fmt::format("{}-{}", uuid(), attempt.id);
    database_
        ->Prepare("INSERT INTO attempts VALUES (?1, ?2, ?3, 'running', " TRIMTAB_SQL_NOW
                  ", NULL, NULL, '', ?4)")
        .Bind(1, attempt.id)
        .Bind(2, candidate)
        .Bind(3, attempt.token)
        .Bind(4, round)
        .Run();
  });
  return attempt;
}

void Study::FinishAttempt(const Attempt& attempt, const TrialOutcome& outcome) {
  const std::vector<TrialResult> results = ReadResults(results_path());
  database_->Transaction([&] {
    for (const TrialResult& result : results) StoreResult(result);
    database_->Prepare("UPDATE attempts SET exit_code = ?2 WHERE id = ?1")
        .Bind(1, attempt.id)
        .Bind(2, int64_t{outcome.exit_code})
        .Run();
    database_
        ->Prepare("UPDATE attempts SET state = ?2, message = ?3, finished_at = " TRIMTAB_SQL_NOW
                  " WHERE id = ?1 AND state = 'running'")
        .Bind(1, attempt.id)
        .Bind(2, Name(outcome.state))
        .Bind(3, outcome.message)
        .Run();
  });
}

/// False when the line is of another study, or in already.
bool Study::StoreResult(const TrialResult& result) {
  if (result.state == TrialState::kInterrupted) return false;  // it never began
  // A failure that was forgiven stays so.
  Statement query = database_->Prepare(
      "SELECT id FROM attempts WHERE token = ?1 AND "
      "(state = 'running' OR (state = 'interrupted' AND ?2 <> 'failed'))");
  if (!query.Bind(1, result.attempt).Bind(2, Name(result.state)).Step()) return false;
  const int64_t attempt = query.Int(0);
  database_
      ->Prepare("UPDATE attempts SET state = ?2, message = ?3, finished_at = " TRIMTAB_SQL_NOW
                " WHERE id = ?1")
      .Bind(1, attempt)
      .Bind(2, Name(result.state))
      .Bind(3, result.message)
      .Run();
  if (!result.measurement) return true;
  const Measurement& measurement = *result.measurement;
  database_->Prepare("INSERT INTO measurements VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
      .Bind(1, attempt)
      .Bind(2, measurement.step_time_s)
      .Bind(3, measurement.step_time_mad_s)
      .Bind(4, measurement.tokens_per_s)
      .Bind(5, measurement.peak_mem_bytes)
      .Bind(6, ToJson(measurement).dump())
      .Run();
  return true;
}

std::string Study::ForgiveSuspects() {
  const std::string suspect = fmt::format(
      "a.state IN ('crashed', 'timed_out', 'failed', 'lost') AND NOT {}", kAnotherRanSince);
  std::string first;
  database_->Transaction([&] {
    Statement query = database_->Prepare(
        fmt::format("SELECT c.key, a.state, a.message FROM attempts a "
                    "JOIN candidates c ON c.id = a.candidate_id WHERE {} ORDER BY a.id LIMIT 1",
                    suspect));
    if (query.Step()) {
      first = fmt::format("{}: {}: {}", query.Text(0), query.Text(1), query.Text(2));
    }
    database_->Execute("UPDATE attempts AS a SET state = 'interrupted' WHERE " + suspect);
  });
  return first;
}

int64_t Study::IngestResults() {
  const std::vector<TrialResult> results = ReadResults(results_path());
  int64_t stored = 0;
  database_->Transaction([&] {
    for (const TrialResult& result : results) stored += StoreResult(result) ? 1 : 0;
  });
  return stored;
}

bool Study::WorkersGone() const {
  return trimtab::WorkersGone(results_path(), kLeftoverWaitSeconds);
}

int64_t Study::Recover() {
  // Whoever holds the file is a worker that a killed driver left; its line may still come.
  AwaitWorkersGone(results_path(), kWorkerWaitSeconds);
  const int64_t ingested = IngestResults();
  database_->Transaction([&] {
    database_->Execute("UPDATE attempts SET state = 'interrupted', finished_at = " TRIMTAB_SQL_NOW
                       ", message = 'the search was killed' WHERE state = 'running'");
  });
  return ingested;
}

std::vector<CandidateRecord> Study::Candidates() const {
  std::vector<CandidateRecord> candidates;
  // A failure is what ended a trial without a measurement, other than the user, a kill, or the
  // loss of its nodes. Where another candidate ran afterwards, it was not the environment's.
  Statement query = database_->Prepare(fmt::format(R"sql(
    SELECT c.id, c.key, c.run, c.pruned_by, c.pruned_why, closed.detail, dry.detail,
           (SELECT m.detail FROM measurements m JOIN attempts a ON a.id = m.attempt_id
            WHERE a.candidate_id = c.id ORDER BY a.id DESC LIMIT 1),
           (SELECT count(*) FROM attempts a WHERE a.candidate_id = c.id
            AND (a.state IN ('out_of_memory', 'numeric')
                 OR (a.state IN ('crashed', 'timed_out', 'failed') AND {0}))),
           (SELECT count(*) FROM attempts a WHERE a.candidate_id = c.id
            AND a.state IN ('crashed', 'timed_out', 'failed') AND NOT {0}),
           (SELECT count(*) FROM attempts a WHERE a.candidate_id = c.id
            AND a.state IN ('lost', 'preempted')),
           (SELECT count(*) FROM attempts a WHERE a.candidate_id = c.id
            AND a.state = 'lost' AND {1} AND {0}),
           (SELECT count(*) FROM attempts a WHERE a.candidate_id = c.id
            AND a.state = 'lost' AND {1} AND NOT {0}),
           last.state, last.message
    FROM candidates c
    LEFT JOIN predictions closed ON closed.candidate_id = c.id AND closed.tier = 'closed_form'
    LEFT JOIN predictions dry ON dry.candidate_id = c.id AND dry.tier = 'dry_run'
    LEFT JOIN attempts last ON last.id =
           (SELECT a.id FROM attempts a WHERE a.candidate_id = c.id
            AND a.state NOT IN ('running', 'done', 'cancelled', 'interrupted')
            ORDER BY a.state IN ('lost', 'preempted'), a.id DESC LIMIT 1)
    ORDER BY c.id)sql",
                                                   kAnotherRanSince, kNotRunSince));
  const auto measurement = [this](const std::string& text, const std::string& key) {
    return measurements_.Of(
        text, [&](const nlohmann::json& json) { return BelievableMeasurement(json, key); });
  };
  std::map<int64_t, size_t> index;
  try {
    candidates.reserve(static_cast<size_t>(database_->QueryInt("SELECT count(*) FROM candidates")));
    while (query.Step()) {
      index[query.Int(0)] = candidates.size();
      CandidateRecord& candidate = candidates.emplace_back();
      candidate.id = query.Int(0);
      candidate.key = query.Text(1);
      const auto prediction = [&](int column) {
        return predictions_.Of(query.Text(column), [&](const nlohmann::json& json) {
          return BelievablePrediction(json, candidate.key);
        });
      };
      candidate.run = runs_.Of(query.Text(2), [&](const nlohmann::json& json) {
        return RunConfigFromJson(json, candidate.key);
      });
      candidate.pruned_by = query.Text(3);
      candidate.pruned_why = query.Text(4);
      if (!query.IsNull(5)) candidate.closed_form = prediction(5);
      if (!query.IsNull(6)) candidate.dry_run = prediction(6);
      if (candidate.pruned_by.empty() && !candidate.closed_form) {
        ThrowDamaged(fmt::format("{} has no prediction", candidate.key));
      }
      if (!query.IsNull(7)) candidate.measured = measurement(query.Text(7), candidate.key);
      candidate.failures = query.Int(8);
      candidate.suspects = query.Int(9);
      candidate.losses = query.Int(10);
      candidate.own_losses = query.Int(11);
      candidate.open_losses = query.Int(12);
      candidate.last_state = query.Text(13);
      candidate.last_message = query.Text(14);
    }
    Statement visits = database_->Prepare(
        fmt::format("SELECT a.candidate_id, a.round_id, {}, m.detail FROM measurements m "
                    "JOIN attempts a ON a.id = m.attempt_id WHERE a.round_id IS NOT NULL "
                    "ORDER BY a.id",
                    SecondsOf("a.finished_at")));
    while (visits.Step()) {
      const auto at = index.find(visits.Int(0));
      if (at == index.end()) ThrowDamaged("a visit of no candidate");
      CandidateRecord& candidate = candidates[at->second];
      candidate.visits.push_back({.round = visits.Int(1),
                                  .at_s = visits.Real(2),
                                  .measurement = measurement(visits.Text(3), candidate.key)});
    }
  } catch (const nlohmann::json::exception& error) {
    ThrowDamaged(error.what());
  } catch (const InputError& error) {
    ThrowDamaged(error.what());
  }
  return candidates;
}

std::vector<std::pair<std::string, std::string>> Study::Versions() const {
  std::vector<std::pair<std::string, std::string>> versions;
  Statement query =
      database_->Prepare("SELECT component, version FROM versions ORDER BY first_used_at, 1");
  while (query.Step()) versions.emplace_back(query.Text(0), query.Text(1));
  return versions;
}

}  // namespace trimtab
