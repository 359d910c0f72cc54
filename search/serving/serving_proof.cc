#include "search/serving/serving_proof.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "engine/base/error.h"
#include "profiler/stats.h"
#include "profiler/two_way_fit.h"
#include "search/serving/serving_report.h"

namespace trimtab {
namespace {

constexpr double kSure = 1.645;  // standard deviations below which 95 % of a normal variable lie

/// Each figure's median.
LoadReport MedianOf(const std::vector<LoadReport>& reports) {
  LoadReport median = reports.front();
  const auto of = [&reports](auto figure) {
    std::vector<double> values;
    for (const LoadReport& each : reports) values.push_back(figure(each));
    return Median(std::move(values));
  };
  median.duration_s = of([](const LoadReport& each) { return each.duration_s; });
  median.failed = static_cast<int64_t>(
      of([](const LoadReport& each) { return static_cast<double>(each.failed); }));
  for (const auto latency :
       {&LoadReport::ttft, &LoadReport::tpot, &LoadReport::itl, &LoadReport::e2e}) {
    for (const auto figure : {&LatencySummary::mean, &LatencySummary::p50, &LatencySummary::p90,
                              &LatencySummary::p95, &LatencySummary::p99}) {
      median.*latency.*figure = of([&](const LoadReport& each) { return each.*latency.*figure; });
    }
  }
  return median;
}

class Prover {
 public:
  Prover(const ServingProblem& problem, const ServingSearchResult& result,
         const ServingProofOptions& options, const ServeOnce& serve, ServingStudy& study,
         ServingProofEvents& events)
      : problem_(problem),
        result_(result),
        options_(options),
        serve_(serve),
        study_(study),
        events_(events),
        count_(std::min(result.ranking.size(), static_cast<size_t>(options.candidates))) {}

  ServingProof Run() {
    visits_ = study_.Visits();
    Conclude(/*ended=*/MakeVisits());
    study_.SetReport(Report());
    return std::move(proof_);
  }

 private:
  /// What the visits so far come to.
  void Conclude(bool ended) {
    proof_ = {};
    proof_.ended = ended;
    proof_.proved.resize(count_);
    for (size_t i = 0; i < count_; ++i) proof_.proved[i].place = i;
    TakeFailures();
    TakeReports();
    Decide();
  }

  nlohmann::json Report() const { return ServingReportJson(problem_, result_, &proof_); }

  const ServingCandidate& CandidateOf(const ProvedServing& proved) const {
    return result_.ranking[proved.place].candidate;
  }

  bool Failed(const std::string& key) const {
    return std::any_of(visits_.begin(), visits_.end(), [&](const ServingVisit& each) {
      return each.key == key && !each.failure.empty();
    });
  }

  bool Visited(const std::string& key, int64_t round) const {
    return std::any_of(visits_.begin(), visits_.end(), [&](const ServingVisit& each) {
      return each.key == key && each.round == round;
    });
  }

  /// False when it was stopped.
  bool MakeVisits() {
    const int64_t total = options_.rounds * static_cast<int64_t>(count_);
    for (int64_t round = 1; round <= options_.rounds; ++round) {
      std::vector<size_t> order(count_);
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(), std::mt19937_64(static_cast<uint64_t>(round)));
      for (const size_t i : order) {
        const ServingCandidate& candidate = result_.ranking[i].candidate;
        const std::string key = candidate.Key();
        if (Failed(key) || Visited(key, round)) continue;
        if (events_.stop_requested()) return false;
        std::optional<ServingVisit> visit =
            serve_(candidate, fmt::format("{},round={}", key, round));
        if (!visit) return false;
        visit->key = key;
        visit->round = round;
        visits_.push_back(*visit);
        Conclude(/*ended=*/false);
        study_.AddVisit(*visit, Report());
        events_.OnVisit(*visit, std::ssize(visits_), total);
      }
    }
    return true;
  }

  void TakeFailures() {
    for (ProvedServing& each : proof_.proved) {
      for (const ServingVisit& visit : visits_) {
        if (visit.key == CandidateOf(each).Key() && !visit.failure.empty()) {
          each.failure = visit.failure;
        }
      }
    }
  }

  void TakeReports() {
    std::vector<TableCell> cells;
    std::vector<size_t> rows;  // of the fit, by candidate
    size_t rounds = 0;
    size_t fitted = 0;
    for (size_t i = 0; i < proof_.proved.size(); ++i) {
      ProvedServing& each = proof_.proved[i];
      std::vector<LoadReport> reports;
      for (const ServingVisit& visit : visits_) {
        if (visit.key != CandidateOf(each).Key() || !visit.failure.empty()) continue;
        reports.push_back(visit.report);
        const ServingRank rank = RankOf(problem_, CandidateOf(each), visit.report);
        if (!each.failure.empty()) continue;
        cells.push_back({.row = fitted,
                         .column = static_cast<size_t>(visit.round - 1),
                         .value = std::log(rank.score)});
        rounds = std::max(rounds, static_cast<size_t>(visit.round));
      }
      each.visits = std::ssize(reports);
      if (reports.empty()) {
        if (each.failure.empty()) each.failure = "not visited";
        continue;
      }
      each.report = MedianOf(reports);
      each.rank = RankOf(problem_, CandidateOf(each), each.report);
      if (each.failure.empty()) rows.push_back(i), ++fitted;
    }
    if (rows.empty()) return;
    const TwoWayFit fit = FitTwoWay(cells, rows.size(), rounds, {});
    for (size_t row = 0; row < rows.size(); ++row) {
      ProvedServing& each = proof_.proved[rows[row]];
      each.rank.score = std::exp(fit.rows[row]);
      each.scatter = std::sqrt(std::max(0.0, fit.variance / static_cast<double>(each.visits)));
    }
  }

  void Decide() {
    const ProvedServing* best = nullptr;
    for (const ProvedServing& each : proof_.proved) {
      if (each.failure.empty() && (best == nullptr || each.rank < best->rank)) best = &each;
    }
    if (best == nullptr && !proof_.ended) return;
    if (best == nullptr) {
      throw InfeasibleError(fmt::format("all of {} candidates fail when they serve; the first: {}",
                                        proof_.proved.size(), proof_.proved.front().failure));
    }
    proof_.winner = static_cast<size_t>(best - proof_.proved.data());
    proof_.sure = true;
    for (const ProvedServing& each : proof_.proved) {
      if (&each == best || !each.failure.empty() || each.rank.strain != best->rank.strain) continue;
      // By how much it may be better: both means scatter.
      const double better = std::log(best->rank.score / each.rank.score);
      const double scatter = std::hypot(best->scatter, each.scatter);
      proof_.sure &= better + kSure * scatter < options_.indifference;
    }
  }

  const ServingProblem& problem_;
  const ServingSearchResult& result_;
  const ServingProofOptions& options_;
  const ServeOnce& serve_;
  ServingStudy& study_;
  ServingProofEvents& events_;
  size_t count_;  // of candidates
  std::vector<ServingVisit> visits_;
  ServingProof proof_;
};

}  // namespace

ServingProof ProveServing(const ServingProblem& problem, const ServingSearchResult& result,
                          const ServingProofOptions& options, const ServeOnce& serve,
                          ServingStudy& study, ServingProofEvents& events) {
  return Prover(problem, result, options, serve, study, events).Run();
}

}  // namespace trimtab
