#include "search/live_report.h"

#include <sys/stat.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "search/page/live.h"
#include "search/page/page.h"
#include "search/report.h"
#include "search/search_result.h"
#include "search/study/sqlite.h"
#include "search/study/study.h"
#include "search/study/study_file.h"

namespace trimtab {
namespace {

using nlohmann::json;

// Lines of the log on the page: a browser has more to do than to scroll.
constexpr size_t kMostLines = 200;

/// Lists the visits of all candidates and the trials that failed, the last first.
json LogOf(const std::vector<CandidateRecord>& candidates) {
  std::vector<json> lines;
  for (const CandidateRecord& candidate : candidates) {
    for (const VisitRecord& visit : candidate.visits) {
      lines.push_back({{"at_s", visit.at_s},
                       {"round", visit.round},
                       {"key", candidate.key},
                       {"tokens_per_s", visit.measurement.tokens_per_s},
                       {"what", ""}});
    }
    if (!candidate.last_state) continue;
    lines.push_back({{"at_s", nullptr},
                     {"round", nullptr},
                     {"key", candidate.key},
                     {"tokens_per_s", nullptr},
                     {"what", FailureText(*candidate.last_state, candidate.last_message)}});
  }
  std::ranges::stable_sort(lines, [](const json& a, const json& b) {
    const auto at = [](const json& line) {
      return line["at_s"].is_null() ? std::numeric_limits<double>::infinity()
                                    : line["at_s"].get<double>();
    };
    return at(a) > at(b);
  });
  if (lines.size() > kMostLines) lines.resize(kMostLines);
  return lines;
}

json ProgressOf(const Study& study, bool runs) {
  const std::vector<CandidateRecord>& candidates = study.Candidates();
  const std::vector<RoundRecord>& rounds = study.Rounds();
  int64_t dry_runs = 0;
  int64_t visits = 0;
  int64_t measured = 0;
  int64_t failures = 0;
  for (const CandidateRecord& each : candidates) {
    dry_runs += each.dry_run ? 1 : 0;
    visits += std::ssize(each.visits);
    measured += each.visits.empty() ? 0 : 1;
    failures += each.failures;
  }
  const std::string phase = !study.enumerated() ? "walking the space"
                            : rounds.empty()    ? "predicting"
                                                : "racing";
  return {{"runs", runs},
          {"phase", phase},
          {"stopped_by", study.stopped_by()},
          {"candidates", candidates.size()},
          {"dry_runs", dry_runs},
          {"rounds", rounds.size()},
          {"visits", visits},
          {"measured", measured},
          {"failures", failures},
          {"log", LogOf(candidates)}};
}

}  // namespace

std::string LiveVersion(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return "none";
  return fmt::format("{}.{:09}-{}-{}-{}", file.st_mtim.tv_sec, file.st_mtim.tv_nsec, file.st_size,
                     file.st_ino, Database::HasWriter(path) ? "runs" : "rests");
}

LiveReport ReadLiveReport(const std::string& path) {
  // The next version covers changes that are written while this reads.
  LiveReport live = {.version = LiveVersion(path), .html = "", .json = ""};
  if (HoldsNoStudy(path)) {
    live.html = WaitingHtml(path);
    return live;
  }
  const std::unique_ptr<Study> study = Study::OpenExisting(path);
  json progress = ProgressOf(*study, Database::HasWriter(path));
  std::string report;
  try {
    const SearchResult result = ResultFromStudy(*study);
    const json figures = ReportJson(result);
    report = ReportBody(figures, MakeFindings(result));
    live.json = figures.dump(2) + "\n";
  } catch (const InputError&) {
    progress["why_no_report"] = "no candidate is stored yet";
  } catch (const InfeasibleError& error) {
    progress["why_no_report"] = error.what();
  }
  live.html = LiveHtml(progress, report);
  return live;
}

}  // namespace trimtab
