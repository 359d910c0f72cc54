// The tables of a study. STUDY.md explains every column; change both together, and raise
// kStudySchemaVersion when an older program could no longer read the file.
#pragma once

#include <string>

#include "search/study/study_file.h"

/// The moment of a statement, in SQL: 2024-05-01T12:00:00.000Z.
#define TRIMTAB_SQL_NOW "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"

namespace trimtab {

/// The state of an attempt that has not ended; else it is a TrialState's name.
inline constexpr char kRunning[] = "running";

/// SQL: seconds from the making of the study to the moment in `column`.
inline std::string SecondsOf(const std::string& column) {
  return "((julianday(" + column + ") - (SELECT julianday(created_at) FROM study)) * 86400.0)";
}

inline constexpr int kStudySchemaVersion = 9;

inline constexpr char kRoundsSchema[] = R"sql(
CREATE TABLE rounds (
  id           INTEGER PRIMARY KEY,
  candidates   TEXT NOT NULL,
  started_at   TEXT NOT NULL,
  finished_at  TEXT,
  speed        REAL,
  speed_low    REAL,
  speed_high   REAL
) STRICT;
)sql";

inline constexpr char kPrunedSchema[] = R"sql(
CREATE TABLE pruned (
  rule        TEXT PRIMARY KEY,
  candidates  INTEGER NOT NULL CHECK (candidates > 0)
) STRICT;
)sql";

inline constexpr char kStudySchema[] = R"sql(
CREATE TABLE study (
  id            INTEGER PRIMARY KEY CHECK (id = 1),
  uuid          TEXT NOT NULL,
  created_at    TEXT NOT NULL,
  workload      TEXT NOT NULL CHECK (workload IN ('training', 'serving')),
  problem       TEXT NOT NULL,
  problem_hash  TEXT NOT NULL,
  profile       TEXT NOT NULL,
  objective     TEXT NOT NULL,
  prove_count   INTEGER NOT NULL,
  enumerated    INTEGER NOT NULL CHECK (enumerated IN (0, 1)),
  indifference  REAL NOT NULL DEFAULT 0.01,
  most_rounds   INTEGER NOT NULL DEFAULT 40,
  seed          TEXT NOT NULL DEFAULT '[]',
  recipes       TEXT NOT NULL DEFAULT '[]',
  stopped_by    TEXT NOT NULL DEFAULT '',
  gap           REAL NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE measured (
  key    TEXT PRIMARY KEY,
  value  TEXT NOT NULL
) STRICT;

CREATE TABLE versions (
  component      TEXT NOT NULL,
  version        TEXT NOT NULL,
  first_used_at  TEXT NOT NULL,
  PRIMARY KEY (component, version)
) STRICT;

CREATE TABLE candidates (
  id          INTEGER PRIMARY KEY,
  key         TEXT NOT NULL UNIQUE,
  config      TEXT NOT NULL,
  pruned_by   TEXT,
  pruned_why  TEXT,
  CHECK ((pruned_by IS NULL) = (pruned_why IS NULL))
) STRICT;

CREATE TABLE predictions (
  candidate_id    INTEGER NOT NULL REFERENCES candidates (id),
  tier            TEXT NOT NULL CHECK (tier IN ('closed_form', 'dry_run', 'simulation')),
  step_time_s     REAL NOT NULL,
  tokens_per_s    REAL NOT NULL,
  peak_mem_bytes  INTEGER NOT NULL,
  trust           TEXT NOT NULL,
  detail          TEXT NOT NULL,
  PRIMARY KEY (candidate_id, tier)
) STRICT;
)sql";

inline constexpr char kAttemptsSchema[] = R"sql(
CREATE TABLE attempts (
  id            INTEGER PRIMARY KEY,
  candidate_id  INTEGER NOT NULL REFERENCES candidates (id),
  token         TEXT NOT NULL UNIQUE,
  state         TEXT NOT NULL CHECK (state IN ('running', 'done', 'out_of_memory', 'crashed',
                                               'timed_out', 'failed', 'cancelled', 'interrupted',
                                               'numeric', 'lost', 'preempted')),
  started_at    TEXT NOT NULL,
  finished_at   TEXT,
  exit_code     INTEGER,
  message       TEXT NOT NULL,
  round_id      INTEGER REFERENCES rounds (id),
  CHECK ((state = 'running') = (finished_at IS NULL))
) STRICT;

CREATE INDEX attempts_by_candidate ON attempts (candidate_id);
)sql";

inline constexpr char kMeasurementsSchema[] = R"sql(
CREATE TABLE measurements (
  attempt_id       INTEGER PRIMARY KEY REFERENCES attempts (id),
  step_time_s      REAL NOT NULL,
  step_time_mad_s  REAL NOT NULL,
  tokens_per_s     REAL NOT NULL,
  peak_mem_bytes   INTEGER NOT NULL,
  detail           TEXT NOT NULL
) STRICT;
)sql";

}  // namespace trimtab
