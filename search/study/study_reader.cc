// Reading a study: each table once, with nothing in it taken on trust, for it may have been edited.
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/families/load_config.h"
#include "engine/infer/serving_json.h"
#include "search/study/study.h"
#include "search/study/study_schema.h"

namespace trimtab {
namespace {

/// Refuses figures that the program cannot have written.
Measurement BelievableMeasurement(const std::string& text, const std::string& key) {
  Measurement measurement = MeasurementFromJson(nlohmann::json::parse(text), key);
  if (const std::string fault = WhyNotNumeric(measurement); !fault.empty()) {
    throw InputError(fmt::format("{}: {}", key, fault));
  }
  return measurement;
}

Prediction BelievablePrediction(const std::string& text, const std::string& key) {
  Prediction prediction = PredictionFromJson(nlohmann::json::parse(text), key);
  if (prediction.step_time_s > 0) return prediction;
  throw InputError(fmt::format("{}: a step is predicted to take no time", key));
}

void ReadStudyRow(Database& database, StudyState& state) {
  Statement query = database.Prepare(
      "SELECT uuid, objective, prove_count, indifference, most_rounds, stopped_by, enumerated, gap "
      "FROM study");
  if (!query.Step()) throw InputError("it has no problem");
  state.uuid = query.Text(0);
  state.goal = {.objective = ParseObjective(query.Text(1)),
                .prove_count = query.Int(2),
                .indifference = query.Real(3),
                .most_rounds = query.Int(4)};
  state.stopped_by = query.Text(5);
  state.enumerated = query.Int(6) != 0;
  state.gap = query.Real(7);
}

void ReadPruned(Database& database, StudyState& state) {
  Statement query = database.Prepare("SELECT rule, candidates FROM pruned ORDER BY rowid");
  while (query.Step()) state.pruned.emplace_back(query.Text(0), query.Int(1));
}

void ReadCandidates(Database& database, StudyState& state) {
  const bool serves = database.QueryInt("SELECT workload = 'serving' FROM study") != 0;
  Statement query = database.Prepare(R"sql(
    SELECT c.id, c.key, c.config, c.pruned_by, c.pruned_why, closed.detail, dry.detail
    FROM candidates c
    LEFT JOIN predictions closed ON closed.candidate_id = c.id AND closed.tier <> 'dry_run'
    LEFT JOIN predictions dry ON dry.candidate_id = c.id AND dry.tier = 'dry_run'
    ORDER BY c.id)sql");
  while (query.Step()) {
    CandidateRecord& candidate = state.candidates.emplace_back();
    candidate.id = query.Int(0);
    candidate.key = query.Text(1);
    const nlohmann::json config = nlohmann::json::parse(query.Text(2));
    if (serves) {
      candidate.serving = ServingConfigFromJson(config, candidate.key);
      candidate.run = RunOfService(*candidate.serving);
    } else {
      candidate.run = RunConfigFromJson(config, candidate.key);
    }
    candidate.pruned_by = query.Text(3);
    candidate.pruned_why = query.Text(4);
    if (!query.IsNull(5)) {
      candidate.closed_form = BelievablePrediction(query.Text(5), candidate.key);
    }
    if (!query.IsNull(6)) candidate.dry_run = BelievablePrediction(query.Text(6), candidate.key);
    if (candidate.pruned_by.empty() && !candidate.closed_form) {
      throw InputError(fmt::format("{} has no prediction", candidate.key));
    }
    if (candidate.closed_form && candidate.closed_form->service.has_value() != serves) {
      throw InputError(fmt::format("{} is predicted for another workload", candidate.key));
    }
  }
}

void ReadRounds(Database& database, StudyState& state) {
  Statement query = database.Prepare(fmt::format(
      "SELECT id, candidates, {}, {}, speed, speed_low, speed_high FROM rounds ORDER BY id",
      SecondsOf("started_at"), SecondsOf("finished_at")));
  while (query.Step()) {
    RoundRecord& round = state.rounds.emplace_back();
    round.id = query.Int(0);
    if (round.id != static_cast<int64_t>(state.rounds.size())) {
      throw InputError(fmt::format("round {} is missing", state.rounds.size()));
    }
    const nlohmann::json ids = nlohmann::json::parse(query.Text(1), nullptr, false);
    if (!ids.is_array()) throw InputError(fmt::format("round {} visits nothing", round.id));
    for (const nlohmann::json& id : ids) {
      if (!id.is_number_integer() || state.FindCandidate(id.get<int64_t>()) == nullptr) {
        throw InputError(fmt::format("round {} visits {}", round.id, id.dump()));
      }
      round.candidates.push_back(id.get<int64_t>());
    }
    round.at_s = query.Real(2);
    if (query.IsNull(4)) continue;
    round.seconds = query.Real(3) - round.at_s;
    if (!(query.Real(4) > 0)) throw InputError(fmt::format("the speed of round {}", round.id));
    round.speed = {.median = query.Real(4), .low = query.Real(5), .high = query.Real(6)};
  }
}

void ReadAttempts(Database& database, StudyState& state) {
  Statement query = database.Prepare(
      fmt::format("SELECT a.id, a.candidate_id, a.round_id, a.token, a.state, a.message, {}, "
                  "m.detail FROM attempts a LEFT JOIN measurements m ON m.attempt_id = a.id "
                  "ORDER BY a.id",
                  SecondsOf("a.finished_at")));
  while (query.Step()) {
    AttemptRecord& attempt = state.attempts.emplace_back();
    attempt.id = query.Int(0);
    attempt.candidate = query.Int(1);
    attempt.round = query.Int(2);
    attempt.token = query.Text(3);
    if (query.Text(4) != kRunning) attempt.state = ParseTrialState(query.Text(4));
    attempt.message = query.Text(5);
    CandidateRecord* const candidate = state.FindCandidate(attempt.candidate);
    if (attempt.id != static_cast<int64_t>(state.attempts.size()) || candidate == nullptr) {
      throw InputError(fmt::format("attempt {} is of no candidate", attempt.id));
    }
    if (query.IsNull(7)) continue;
    candidate->visits.push_back(
        {.round = attempt.round,
         .at_s = query.Real(6),
         .measurement = BelievableMeasurement(query.Text(7), candidate->key),
         .attempt = attempt.id});
    const bool served = candidate->visits.back().measurement.service.has_value();
    if (served != candidate->serving.has_value()) {
      throw InputError(fmt::format("{} was measured for another workload", candidate->key));
    }
  }
}

}  // namespace

StudyState ReadStudyState(Database& database) {
  StudyState state;
  try {
    ReadStudyRow(database, state);
    ReadPruned(database, state);
    ReadCandidates(database, state);
    ReadRounds(database, state);
    ReadAttempts(database, state);
  } catch (const nlohmann::json::exception& error) {
    ThrowDamagedStudy(database.path(), error.what());
  } catch (const StorageError&) {
    throw;
  } catch (const Error& error) {
    ThrowDamagedStudy(database.path(), error.what());
  }
  state.CountTrials();
  return state;
}

void ThrowDamagedStudy(const std::string& path, const std::string& detail) {
  throw StorageError(fmt::format("{}: not a study, or a damaged one ({})", path, detail));
}

}  // namespace trimtab
