#include "tests/search/study/study_fixtures.h"

#include "tests/search/search_fakes.h"

namespace trimtab {

std::vector<CandidateRecord> SomeCandidates() {
  std::vector<CandidateRecord> candidates;
  for (const RunConfig& run : LegalCandidates(TinyProblem())) {
    CandidateRecord& candidate = candidates.emplace_back();
    candidate.key = CandidateKey(run);
    candidate.run = run;
    candidate.closed_form = FakePredictor().ClosedForm(run);
    if (candidates.size() == 3) break;
  }
  candidates[2].pruned_by = "memory";
  candidates[2].pruned_why = "needs more";
  return candidates;
}

void AppendDone(const Study& study, const Attempt& attempt, const RunConfig& run) {
  ResultsFile(study.results_path())
      .Append({.attempt = attempt.token,
               .state = TrialState::kDone,
               .message = "",
               .measurement = FakeMeasurement(run)});
}

}  // namespace trimtab
