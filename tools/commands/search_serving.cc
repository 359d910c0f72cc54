#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "cost_model/serving/serving_fit.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/config/model_limits.h"
#include "search/page/report_folder.h"
#include "search/serving/serving_findings.h"
#include "search/serving/serving_narrowing.h"
#include "search/serving/serving_report.h"
#include "tools/command.h"
#include "tools/serving_problem.h"
#include "tools/serving_quality.h"
#include "tools/serving_rates.h"
#include "tools/serving_visit.h"
#include "tools/signals.h"
#include "tools/table.h"

namespace trimtab {
namespace {

constexpr int64_t kCertain = 3;  // of the ranking, that nobody who is left out is better than

/// "tp=4,8,weights=fp8" as values by dimension: what has no key goes on with the values before it.
void AddValues(const std::vector<std::string>& words, const char* flag,
               std::map<std::string, std::vector<std::string>>& values) {
  std::string key;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals != std::string::npos) {
      key = word.substr(0, equals);
      if (values.contains(key)) throw UsageError(fmt::format("{}: {} is given twice", flag, key));
    }
    if (key.empty()) throw UsageError(fmt::format("{}: '{}'; expected KEY=VALUE", flag, word));
    values[key].push_back(equals == std::string::npos ? word : word.substr(equals + 1));
  }
}

class SearchServingCommand : public Command {
 public:
  std::string name() const override { return "search"; }
  std::string summary() const override {
    return "find the best way to serve: simulate, prove, recommend";
  }

  void Declare(FlagSet& flags) override {
    flags_ = &flags;
    problem_.Declare(flags);
    quality_.Declare(flags);
    flags.Group("Space");
    flags.Integer("--max-ranks", max_ranks_, 1, kMaxWorld / 2, "most ranks [the cluster's]");
    flags.List("--fix KEY=V,...", fixed_, "values that every candidate has: tp=8,weights=fp8");
    flags.List(
        "--allow KEY=V,...", allowed_,
        {"values that candidates may have: tp=4,8,cache=fp8", "A key may have several values."});
    flags.Group("Objective");
    flags.Choice("--objective", objective_, {"throughput", "latency", "price", "gpus"},
                 {"what to optimise",
                  "Among those that meet the requirements: output tokens per second, mean time to "
                  "the end of an answer, price per token, or fewest GPUs."});
    flags.Text("--require LIMIT,...", require_,
               {"constraints, e.g. ttft.p99<500ms,tpot.mean<30ms",
                "Also throughput>1000, and of the formats of weights and cache perplexity<1.02x, "
                "relative to the original weights."});
    flags.Group("Measuring");
    flags.Integer(
        "--prove", proof_.candidates, 0, kMax32,
        {"measure N candidates; 0: predict only", "They serve the load on this machine's cores."});
    flags.Integer("--rounds", proof_.rounds, 1, kMax32,
                  {"rounds of visits", "In each, every candidate serves the load once."});
    flags.Number("--visit-limit", visit_.time_limit_s, 0, 1e9,
                 "seconds after which a visit is killed; 0: never");
    flags.Group("Study");
    flags.Text("--study FILE", study_path_,
               {"SQLite file that keeps measurements and report",
                "Made with --prove, or if it is given."});
    flags.Switch("--resume", resume_, "go on with the study if it is there");
    flags.Group("Output");
    flags.Text("--report FOLDER", report_, "write report.json and REPORT.html here");
    flags.Integer("--top", top_, 1, kMax32, "rows of the ranking to print");
    flags.ShortList({"--for", "--model", "--cluster", "--workload", "--concurrency", "--rate",
                     "--require", "--objective", "--prove", "--report"});
  }

  int Run(const OutputOptions& output) override {
    ServingProblem problem = problem_.Resolve();
    problem.requirements = ParseRequirements(require_);
    quality_.Resolve(problem);
    problem.objective = ParseServingObjective(objective_);
    problem.max_ranks = max_ranks_;
    AddValues(fixed_, "--fix", problem.allowed);
    for (const auto& [key, values] : problem.allowed) {
      if (values.size() == 1) continue;
      throw UsageError(fmt::format("--fix {}: {} values; expected one, --allow takes several", key,
                                   values.size()));
    }
    AddValues(allowed_, "--allow", problem.allowed);
    if (proof_.candidates > 0 && problem.cluster.name != "local") {
      throw UsageError(fmt::format("--prove needs --cluster local: {} is not this machine",
                                   problem.cluster.name));
    }
    RequireChoosable(problem);
    if (!report_.empty()) PrepareReport(report_);
    std::unique_ptr<ServingStudy> study;
    if (proof_.candidates > 0 || flags_->Given("--study")) study = OpenStudy(problem);
    quality_.Measure(problem, study.get());
    const ServingSearchResult result = Search(problem, study);
    if (study && study->Visits().empty()) {
      study->SetReport(ServingReportJson(problem, result, /*proof=*/nullptr));
    }
    std::optional<ServingProof> proof;
    if (proof_.candidates > 0) proof = Prove(problem, result, *study);
    return Show(problem, result, proof, output);
  }

 private:
  class VisitLines final : public ServingProofEvents {
   public:
    void OnVisit(const ServingVisit& visit, int64_t done, int64_t total) override {
      if (!visit.failure.empty()) {
        LogWarning("visit {} of {}: {}: {}", done, total, visit.key, visit.failure);
        return;
      }
      LogInfo("visit {} of {}: {}: {:.1f} tokens/s, TTFT p99 {:.1f} ms, TPOT {:.2f} ms", done,
              total, visit.key, visit.report.output_tokens_per_s(), visit.report.ttft.p99,
              visit.report.tpot.mean);
    }
    bool stop_requested() override { return RequestedStop() != StopLevel::kNone; }
  };

  /// Removes a study that this command made if nothing can serve: it would be in the way of the
  /// next one.
  ServingSearchResult Search(const ServingProblem& problem,
                             std::unique_ptr<ServingStudy>& study) const {
    try {
      return SearchServing(problem, std::max(1, static_cast<int>(CoresOfThisMachine())),
                           std::max<int64_t>(kCertain, proof_.candidates));
    } catch (const Error&) {
      const bool is_new = study != nullptr && study->created();
      study.reset();
      std::error_code ignored;
      if (is_new) std::filesystem::remove(study_path_, ignored);
      throw;
    }
  }

  /// What was measured for the study is what it goes on with.
  std::unique_ptr<ServingStudy> OpenStudy(ServingProblem& problem) const {
    auto study = ServingStudy::Open(study_path_, ServingProblemJson(problem), resume_);
    if (problem.cluster.device == "cuda") return study;
    problem.rates = [measure = problem.rates, kept = study.get()](const ServingConfig& config) {
      const std::string key = ServingRatesKey(config);
      if (const auto found = kept->FindMeasured(key)) return ServingRatesFromJson(*found, key);
      const ServingRates rates = measure(config);
      kept->AddMeasured(key, ToJson(rates));
      return rates;
    };
    return study;
  }

  ServingProof Prove(const ServingProblem& problem, const ServingSearchResult& result,
                     ServingStudy& study) {
    CatchStopSignals();
    visit_.folder = study_path_ + ".visits";
    visit_.afresh = study.created();
    visit_.cancelled = [] { return RequestedStop() == StopLevel::kCancel; };
    VisitLines events;
    return ProveServing(problem, result, proof_, MakeServingVisitor(problem, visit_), study,
                        events);
  }

  int Show(const ServingProblem& problem, const ServingSearchResult& result,
           const std::optional<ServingProof>& proof, const OutputOptions& output) const {
    const nlohmann::json report = ServingReportJson(problem, result, proof ? &*proof : nullptr);
    if (!report_.empty()) {
      WriteServingReport(report, report_);
      LogInfo("wrote the report to {}", report_);
    }
    if (output.json) {
      PrintJson(report);
    } else {
      PrintText(Text(problem, result, proof, UseColor(output, STDOUT_FILENO)));
    }
    const nlohmann::json& recommended = report["recommended"];
    if (proof && !proof->ended) {
      LogWarning("partial result: stopped; --resume goes on with {}", study_path_);
      return StopExitCode();
    }
    if (!recommended["meets_requirements"].get<bool>()) {
      throw InfeasibleError(
          fmt::format("nothing meets {}; {} comes closest, and would meet {}", require_,
                      recommended["key"].get<std::string>(),
                      fmt::join(recommended["relaxations"].get<std::vector<std::string>>(), ", ")));
    }
    if (!proof || proof->sure) return 0;
    LogWarning("partial result: a tie; more --rounds with --resume may break it");
    return static_cast<int>(ExitCode::kPartial);
  }

  static std::string SpaceText(const ServingSearchResult& result) {
    std::string text = fmt::format("{}, {} simulated in {}\n", Counted(result.size, "candidate"),
                                   Thousands(result.simulated), FormatSeconds(result.seconds));
    const auto line = [&text](int64_t count, const std::string& why) {
      if (count > 0) text += fmt::format("  {:>7}  {}\n", Thousands(count), why);
    };
    for (const auto& [rule, count] : result.cut_by_rule) line(count, rule);
    line(result.cut_by_memory, "do not fit");
    line(result.alike, "would run like one that was simulated");
    line(result.cut_by_bound, "cannot be better than the best ones (proved by bounds)");
    line(result.cut_on_the_way, "stopped during simulation: cannot become better");
    return text;
  }

  static std::string ProofText(const ServingSearchResult& result, const ServingProof& proof,
                               bool bold) {
    Table table({{"served for real"},
                 {"tokens/s", Align::kRight},
                 {"predicted", Align::kRight},
                 {"TTFT p99", Align::kRight},
                 {"predicted", Align::kRight},
                 {"TPOT mean", Align::kRight},
                 {"predicted", Align::kRight},
                 {"visits", Align::kRight}});
    const auto ms = [](double value) { return fmt::format("{:.1f} ms", value); };
    for (const ProvedServing& each : proof.proved) {
      const ServingEvaluation& predicted = result.ranking[each.place];
      const LoadReport& before = predicted.prediction.report;
      const LoadReport& after = each.report;
      std::vector<std::string> row = {predicted.candidate.Key()};
      if (each.failure.empty()) {
        row.insert(row.end(),
                   {fmt::format("{:.1f}", after.output_tokens_per_s()),
                    fmt::format("{:.1f}", before.output_tokens_per_s()), ms(after.ttft.p99),
                    ms(before.ttft.p99), ms(after.tpot.mean), ms(before.tpot.mean)});
      } else {
        row.insert(row.end(), {each.failure, "", "", "", "", ""});
      }
      row.push_back(fmt::format("{}", each.visits));
      table.AddRow(std::move(row));
    }
    return "\n" + table.ToText(bold);
  }

  std::string Text(const ServingProblem& problem, const ServingSearchResult& result,
                   const std::optional<ServingProof>& proof, bool bold) const {
    Table table({{"#", Align::kRight},
                 {"configuration"},
                 {"tokens/s", Align::kRight},
                 {"TTFT p99", Align::kRight},
                 {"TPOT mean", Align::kRight},
                 {"ITL p99", Align::kRight},
                 {"memory", Align::kRight},
                 {"meets"}});
    const size_t rows = std::min(result.ranking.size(), static_cast<size_t>(top_));
    const auto ms = [](double value) { return fmt::format("{:.1f} ms", value); };
    for (size_t i = 0; i < rows; ++i) {
      const ServingEvaluation& each = result.ranking[i];
      const LoadReport& report = each.prediction.report;
      table.AddRow({fmt::format("{}", i + 1), each.candidate.Key(),
                    fmt::format("{:.0f}", report.output_tokens_per_s()), ms(report.ttft.p99),
                    ms(report.tpot.mean), ms(report.itl.p99), FormatBytes(each.memory.total()),
                    each.meets() ? "yes" : "no"});
    }
    std::string text = SpaceText(result) + "\n" + table.ToText(bold);
    const ServingEvaluation* best = &result.best();
    const LoadReport* seen = &best->prediction.report;
    const char* how = "predicted";
    if (proof && proof->winner) {
      text += ProofText(result, *proof, bold);
      best = &result.ranking[proof->proved[*proof->winner].place];
      seen = &proof->proved[*proof->winner].report;
      how = proof->sure ? "measured" : "measured, a tie";
    }
    const std::vector<std::string> relaxations = Relaxations(problem, best->candidate, *seen);
    text += fmt::format("\n{}: {} on {} of {} ({})\n  {}\n",
                        relaxations.empty() ? "recommended" : "closest", best->candidate.Key(),
                        Counted(best->candidate.gpus(), "rank"), problem.ranks(), how,
                        WhatBinds(problem, result, *best));
    if (const auto price = PricePerMillionTokens(problem, best->candidate, *seen)) {
      text += fmt::format("  a million output tokens cost {:.4g}\n", *price);
    }
    if (problem.limits_quality()) {
      text += fmt::format("  perplexity {:.5g}x the original weights'\n",
                          problem.PerplexityRiseOf(best->candidate.config));
    }
    for (const std::string& each : relaxations) text += fmt::format("  would meet {}\n", each);
    return text;
  }

  const FlagSet* flags_ = nullptr;
  ServingProblemFlags problem_;
  ServingQualityFlags quality_;
  std::string require_;
  std::string objective_ = "throughput";
  std::vector<std::string> fixed_;
  std::vector<std::string> allowed_;
  ServingProofOptions proof_;
  ServingVisitOptions visit_;
  std::string study_path_ = "trimtab-serving.db";
  bool resume_ = false;
  std::string report_;
  int64_t max_ranks_ = 0;
  int64_t top_ = 10;
};

}  // namespace

std::unique_ptr<Command> MakeSearchServingCommand() {
  return std::make_unique<SearchServingCommand>();
}

}  // namespace trimtab
