// Study: everything a search knows, in one SQLite file (STUDY.md documents it to the column).
//
// One writer: a study is locked while it is open to write, and a second driver is refused. It can be
// read meanwhile. Every change is one transaction that is on disk when the call returns, so a driver
// may be killed at any moment.
// Every SQLite failure becomes a StorageError that names the file and the reason.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "profiler/race_fit.h"
#include "profiler/trial.h"
#include "search/space/predictor.h"
#include "search/study/parsed_texts.h"
#include "search/study/residual.h"
#include "search/study/sqlite.h"

namespace trimtab {

/// One finished visit of a race.
struct VisitRecord {
  int64_t round = 0;
  double at_s = 0;  // when it ended, since the study was made
  Measurement measurement{};
};

/// One round of a race. `speed` is the machine's against its calibration, or against the race's
/// median without one; known once all its visits are done.
struct RoundRecord {
  int64_t id = 0;                     // from 1
  std::vector<int64_t> candidates{};  // ids, in the order of their visits
  double at_s = 0;                    // when it began, since the study was made
  double seconds = 0;                 // it took so far; 0 = not known
  std::optional<RaceSpeed> speed{};
};

/// A candidate and all that is known about it.
struct CandidateRecord {
  int64_t id = 0;  // 0 until stored
  std::string key;
  RunConfig run;
  std::string pruned_by;  // a rule's id, or "memory"; empty = in the running
  std::string pruned_why;
  std::optional<Prediction> closed_form;
  std::optional<Prediction> dry_run;
  bool corrected = false;  // the predictions were scaled by what others measured; never stored
  std::vector<VisitRecord> visits;
  /// What all visits say together (race.h). Without visits: the last measurement of an older study.
  std::optional<Measurement> measured;
  double measured_half_width = 0;  // of the interval of its step time, relative; 0 = not known
  int64_t failures = 0;            // trials that failed by themselves: for want of memory, with
                                   // figures that are no numbers, or before another trial ran
  int64_t suspects = 0;            // trials that failed, and none has run since
  int64_t losses = 0;              // trials whose nodes went away, or were given to others
  int64_t own_losses = 0;          // nodes that went away since it ran, before another trial ran
  int64_t open_losses = 0;         // likewise, and no trial has run since
  std::string last_state;          // of the last that failed, or else was lost: a TrialState's name
  std::string last_message;

  /// The best prediction there is: of the dry run, else the closed form. nullptr = none.
  const Prediction* prediction() const {
    return dry_run ? &*dry_run : closed_form ? &*closed_form : nullptr;
  }
};

/// A trial about to start.
struct Attempt {
  int64_t id = 0;
  std::string token;  // the worker's --attempt: unique over all studies
};

/// What a search over a study aims at.
struct SearchGoal {
  std::string objective = "throughput";
  int64_t prove_count = 0;
  double indifference = 0.01;
  int64_t most_rounds = 40;
};

struct StudyOptions {
  bool resume = false;                      // an existing file is continued instead of refused
  std::string program_version = "unknown";  // noted in the study
  std::vector<Residual> seed{};             // what another study measured; kept by a new one
  std::function<void()> after_write =
      nullptr;  // called after every statement that changed the study
};

class Study {
 public:
  /// Creates `path`, or with `resume` continues it (creates it when there is none).
  /// Throws UsageError (the file exists, no resume, or it began without `seed`), InputError
  /// (another problem: says what differs), StorageError (corrupt, locked, unwritable, made by a
  /// newer version).
  static std::unique_ptr<Study> Open(const std::string& path, const Problem& problem,
                                     const StudyOptions& options);
  /// Reads an existing study as it is now, whether or not a search writes it; what that writes
  /// later is not seen. Throws InputError (no such file), StorageError.
  static std::unique_ptr<Study> OpenExisting(const std::string& path);
  ~Study();

  const std::string& path() const { return path_; }
  /// Where workers append: PATH.results.jsonl.
  std::string results_path() const { return path_ + ".results.jsonl"; }
  /// Where the children's output goes: PATH.log.
  std::string log_path() const { return path_ + ".log"; }

  /// 16 hexadecimal digits: what jobs and results of this study are named by.
  std::string uuid() const;

  /// The problem, in the form of ToJson(const Problem&), also where an older version stored it.
  nlohmann::json problem() const;
  /// The hardware profile the predictions were made with.
  nlohmann::json profile() const;
  /// What another study of the machine had measured when this one was made.
  std::vector<Residual> seed() const;

  /// What the last search over this study was asked for; it may differ from one to the next.
  SearchGoal goal() const;
  /// Begins a search, which nothing has stopped yet.
  void SetGoal(const SearchGoal& goal);
  /// What stopped the last search's race before its end: one line; empty where nothing did, or the
  /// driver was killed.
  std::string stopped_by() const;
  void NoteStop(const std::string& why);

  /// Published layouts beside those that were found: ToJson of recipes.h.
  nlohmann::json recipes() const;
  void StoreRecipes(const nlohmann::json& places);

  /// True once every candidate is stored.
  bool enumerated() const;
  /// Stores the legal candidates with their closed-form predictions, and how many others each rule
  /// pruned, at once.
  void StoreCandidates(const std::vector<CandidateRecord>& candidates,
                       const PrunedCounts& pruned = {}, double gap = 0);
  /// The gap that the walk over the space left; 0 where it came to its end.
  double gap() const;
  /// Forgets the candidates, so that the space can be walked again. Does nothing once a round or an
  /// attempt has begun: what was tried stays.
  void ForgetSpace();
  /// What rules pruned, as it was stored. Older studies have none: they hold every candidate.
  PrunedCounts Pruned() const;
  /// Stores a dry run; `pruned_by` "memory" takes the candidate out of the running.
  void StoreDryRun(int64_t candidate, const Prediction& prediction, const std::string& pruned_by,
                   const std::string& pruned_why);

  /// Takes candidates, by id and reason, out of the running for want of memory, at once.
  void PruneForMemory(const std::vector<std::pair<int64_t, std::string>>& candidates);

  /// Begins the next round of the race; its number.
  int64_t BeginRound(const std::vector<int64_t>& candidates);
  /// Notes how fast the machine ran in a round whose visits are done.
  void FinishRound(int64_t round, const RaceSpeed& speed);
  std::vector<RoundRecord> Rounds() const;

  /// A visit of `round` about to start.
  Attempt BeginAttempt(int64_t candidate, int64_t round);
  /// Takes in the results file, as IngestResults does, and how the attempt ended, when no line
  /// there says so already: at once, for each commit waits for the disk.
  void FinishAttempt(const Attempt& attempt, const TrialOutcome& outcome);
  /// The environment is to blame for failures after which no trial ran: they become
  /// "interrupted", and are tried again. Returns the candidate's key, state and message of the
  /// first, on one line.
  std::string ForgiveSuspects();
  /// Takes in every finished line of the results file that is not in yet. Returns how many.
  int64_t IngestResults();
  /// Whether no worker of a killed driver is left, or the last one goes within seconds. Throws
  /// StorageError when the results file cannot be opened.
  bool WorkersGone() const;
  /// To be called before the first attempt of a resumed search: waits for the last worker of a
  /// killed driver to be gone, takes its results in, and marks attempts still "running" as
  /// "interrupted", to be tried again. Returns how many results it took in.
  /// Throws StorageError when a worker does not go.
  int64_t Recover();

  /// All candidates in the order they were stored.
  std::vector<CandidateRecord> Candidates() const;
  std::vector<std::pair<std::string, std::string>> Versions() const;

 private:
  explicit Study(std::unique_ptr<Database> database);
  void Create(const Problem& problem, const std::vector<Residual>& seed);
  /// False for a file with nothing in it yet.
  bool CheckSchema();
  void CheckProblem(const Problem& problem) const;
  void NoteVersion(const std::string& component, const std::string& version);
  void StorePrediction(int64_t candidate, const char* tier, const Prediction& prediction);
  bool StoreResult(const TrialResult& result);
  nlohmann::json JsonColumn(const char* column) const;
  [[noreturn]] void ThrowDamaged(const std::string& detail) const;

  std::string path_;
  std::unique_ptr<Database> database_;
  // A race asks for its candidates after each visit, and little of them is new.
  mutable ParsedTexts<RunConfig> runs_;
  mutable ParsedTexts<Prediction> predictions_;
  mutable ParsedTexts<Measurement> measurements_;
};

}  // namespace trimtab
