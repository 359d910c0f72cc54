// Study: everything a search knows, in one SQLite file (STUDY.md documents it to the column).
//
// One writer: a study is locked while it is open to write, and a second driver is refused. It can
// be read meanwhile. Every change is one transaction that is on disk when the call returns, so a
// driver may be killed at any moment. A study is read once, when it is opened; what is stored later
// is also applied to what was read (study_state.h). Every SQLite failure becomes a StorageError
// that names the file and the reason.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "search/study/candidate_record.h"
#include "search/study/residual.h"
#include "search/study/sqlite.h"
#include "search/study/study_state.h"

namespace trimtab {

/// A trial about to start.
struct Attempt {
  int64_t id = 0;
  std::string token;  // the worker's --attempt: unique over all studies
};

/// Names the formats that a candidate computes in: its precision, of a service "weights/cache".
std::string NumericsOf(const CandidateRecord& candidate);

/// The ranks of a service as a run whose steps are one output token, or answer, each.
RunConfig RunOfService(const ServingConfig& serving);

/// Identifies a study, and prices its predictions.
struct StudyProblem {
  std::string workload;  // "training" or "serving"
  nlohmann::json problem;
  nlohmann::json profile;
};
StudyProblem StudyProblemOf(const Problem& problem);

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
  static std::unique_ptr<Study> Open(const std::string& path, const StudyProblem& problem,
                                     const StudyOptions& options);
  static std::unique_ptr<Study> Open(const std::string& path, const Problem& problem,
                                     const StudyOptions& options) {
    return Open(path, StudyProblemOf(problem), options);
  }
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
  const std::string& uuid() const { return state_.uuid; }

  /// "training" or "serving".
  std::string workload() const;
  /// The problem, in the form of StudyProblem.
  nlohmann::json problem() const;
  /// The hardware profile the predictions were made with.
  nlohmann::json profile() const;
  /// What another study of the machine had measured when this one was made.
  std::vector<Residual> seed() const;

  /// What the last search over this study was asked for; it may differ from one to the next.
  const SearchGoal& goal() const { return state_.goal; }
  /// Begins a search, which nothing has stopped yet.
  void SetGoal(const SearchGoal& goal);
  /// What stopped the last search's race before its end: one line; empty where nothing did, or the
  /// driver was killed.
  const std::string& stopped_by() const { return state_.stopped_by; }
  void NoteStop(const std::string& why);

  /// Returns a figure that was measured once for all predictions (a rate, a perplexity), by name.
  std::optional<nlohmann::json> FindMeasured(const std::string& key) const;
  void AddMeasured(const std::string& key, const nlohmann::json& value);

  /// Published layouts beside those that were found: ToJson of recipes.h.
  nlohmann::json recipes() const;
  void StoreRecipes(const nlohmann::json& places);

  /// True once every candidate is stored.
  bool enumerated() const { return state_.enumerated; }
  /// Stores the legal candidates with their closed-form predictions, and how many others each rule
  /// pruned, at once.
  void StoreCandidates(const std::vector<CandidateRecord>& candidates,
                       const PrunedCounts& pruned = {}, double gap = 0);
  /// The gap that the walk over the space left; 0 where it came to its end.
  double gap() const { return state_.gap; }
  /// Forgets the candidates, so that the space can be walked again. Does nothing once a round or an
  /// attempt has begun: what was tried stays.
  void ForgetSpace();
  /// Counts candidates that rules pruned, as they were stored.
  const PrunedCounts& Pruned() const { return state_.pruned; }
  /// Stores a dry run; `pruned_by` "memory" takes the candidate out of the running.
  void StoreDryRun(int64_t candidate, const Prediction& prediction, const std::string& pruned_by,
                   const std::string& pruned_why);

  /// Takes candidates, by id and reason, out of the running for want of memory, at once.
  void PruneForMemory(const std::vector<std::pair<int64_t, std::string>>& candidates);

  /// Begins the next round of the race; its number.
  int64_t BeginRound(const std::vector<int64_t>& candidates);
  /// Notes how fast the machine ran in a round whose visits are done.
  void FinishRound(int64_t round, const RaceSpeed& speed);
  const std::vector<RoundRecord>& Rounds() const { return state_.rounds; }

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
  /// Returns true if no worker of a killed driver is left, or the last one goes within seconds.
  /// Throws StorageError when the results file cannot be opened.
  bool WorkersGone() const;
  /// To be called before the first attempt of a resumed search: waits for the last worker of a
  /// killed driver to be gone, takes its results in, and marks attempts still "running" as
  /// "interrupted", to be tried again. Returns how many results it took in.
  /// Throws StorageError when a worker does not go.
  int64_t Recover();

  /// All candidates in the order they were stored, without judgements.
  const std::vector<CandidateRecord>& Candidates() const { return state_.candidates; }
  std::vector<std::pair<std::string, std::string>> Versions() const;

 private:
  explicit Study(std::unique_ptr<Database> database);
  void Create(const StudyProblem& problem, const std::vector<Residual>& seed);
  /// False for a file with nothing in it yet.
  bool CheckSchema();
  void CheckProblem(const StudyProblem& problem) const;
  void NoteVersion(const std::string& component, const std::string& version);
  void StorePrediction(int64_t candidate, const char* tier, const Prediction& prediction);
  std::vector<AttemptEnd> StoreResults(const std::vector<TrialResult>& results);
  AttemptEnd StoreEnd(AttemptEnd end);
  nlohmann::json JsonColumn(const char* column) const;
  [[noreturn]] void ThrowDamaged(const std::string& detail) const;

  std::string path_;
  std::unique_ptr<Database> database_;
  StudyState state_;
};

}  // namespace trimtab
