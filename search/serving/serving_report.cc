#include "search/serving/serving_report.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/infer/serving_json.h"
#include "search/page/html.h"
#include "search/page/page.h"
#include "search/page/report_folder.h"
#include "search/serving/serving_findings.h"

namespace trimtab {
namespace {

nlohmann::json BreakdownJson(const ServingPrediction& prediction) {
  const ServingBreakdown& parts = prediction.spent;
  return {{"products", parts.dense_s + parts.head_s},
          {"experts", parts.experts_s},
          {"attention", parts.attention_s},
          {"messages", parts.messages_s},
          {"other_ops", parts.other_s},
          {"gaps", parts.gaps_s},
          {"prompt_launches", parts.prompt_floor_s},
          {"host", parts.host_s},
          {"draft", prediction.draft_s},
          {"copies", prediction.copy_s}};
}

/// Who may propose tokens, and how often they stand; null where nobody may.
nlohmann::json SpeculationJson(const ServingProblem& problem) {
  nlohmann::json json;
  if (problem.draft) {
    json["draft"] = problem.draft->name;
    json["draft_acceptance"] = problem.draft_acceptance;
  }
  if (problem.lookup_acceptance) json["lookup_acceptance"] = *problem.lookup_acceptance;
  return json;
}

/// What fewer bits cost in quality.
nlohmann::json QualityJson(const ServingQuality& quality) {
  nlohmann::json rises = nlohmann::json::array();
  for (const auto& [stored, rise] : quality.rises) {
    rises.push_back(
        {{"weights", Name(stored.first)}, {"cache", CacheName(stored.second)}, {"rise", rise}});
  }
  return {{"of", quality.of}, {"rises", std::move(rises)}};
}

nlohmann::json ProblemJson(const ServingProblem& problem) {
  nlohmann::json requirements = nlohmann::json::array();
  for (const Requirement& each : problem.requirements) requirements.push_back(each.text());
  int64_t input = 0;
  int64_t output = 0;
  for (const LoadRequest& each : problem.load.requests) {
    input += each.prompt_tokens;
    output += each.output_tokens;
  }
  nlohmann::json json = {{"model", problem.model.name},
                         {"cluster", problem.cluster.name},
                         {"ranks", problem.ranks()},
                         {"memory_per_rank_bytes", problem.memory_bytes},
                         {"workload", problem.workload},
                         {"requests", problem.load.requests.size()},
                         {"input_tokens", input},
                         {"output_tokens", output},
                         {"concurrency", problem.load.concurrency},
                         {"requirements", std::move(requirements)},
                         {"objective", Name(problem.objective)}};
  if (nlohmann::json told = SpeculationJson(problem); !told.is_null()) {
    json["speculation"] = std::move(told);
  }
  if (problem.limits_quality()) json["perplexity"] = QualityJson(problem.quality);
  return json;
}

void AddMeasured(const ProvedServing& proved, nlohmann::json& evaluation) {
  evaluation["visits"] = proved.visits;
  if (!proved.failure.empty()) evaluation["failure"] = proved.failure;
  if (proved.visits == 0) return;
  nlohmann::json& measured = evaluation["measured"] = ToJson(proved.report);
  measured.erase("schema_version");
  measured["scatter"] = proved.scatter;
}

void AddPrice(const ServingProblem& problem, const ServingCandidate& candidate,
              const LoadReport& report, nlohmann::json& evaluation) {
  if (const auto price = PricePerMillionTokens(problem, candidate, report)) {
    evaluation["price_per_million_tokens"] = *price;
  }
}

/// The flat figures that the page's tables show.
nlohmann::json RowJson(const nlohmann::json& evaluation) {
  const nlohmann::json& predicted = evaluation["predicted"];
  return {{"key", evaluation["key"]},
          {"gpus", evaluation["gpus"]},
          {"tokens_per_s", predicted["output_tokens_per_s"]},
          {"ttft_p99", predicted["ttft_ms"]["p99"]},
          {"tpot_mean", predicted["tpot_ms"]["mean"]},
          {"itl_p99", predicted["itl_ms"]["p99"]},
          {"per_gpu", evaluation["tokens_per_s_per_gpu"]},
          {"per_user", evaluation["tokens_per_s_per_user"]},
          {"memory", evaluation["memory_bytes"]["total"]}};
}

/// Predicted beside measured, of those that served.
std::string MeasuredTable(const nlohmann::json& ranking) {
  nlohmann::json rows = nlohmann::json::array();
  for (const nlohmann::json& each : ranking) {
    if (!each.contains("measured")) continue;
    const nlohmann::json& predicted = each["predicted"];
    const nlohmann::json& measured = each["measured"];
    rows.push_back({{"key", each["key"]},
                    {"rate", predicted["output_tokens_per_s"]},
                    {"rate_measured", measured["output_tokens_per_s"]},
                    {"ttft", predicted["ttft_ms"]["p99"]},
                    {"ttft_measured", measured["ttft_ms"]["p99"]},
                    {"tpot", predicted["tpot_ms"]["mean"]},
                    {"tpot_measured", measured["tpot_ms"]["mean"]},
                    {"visits", each["visits"]}});
  }
  if (rows.empty()) return "";
  return "<h2>Served for real</h2>\n<p>Each figure is the median of the visits.</p>\n" +
         Table({{"key", "configuration", Shown::kLayout},
                {"rate", "tokens/s, predicted", Shown::kFigure},
                {"rate_measured", "measured", Shown::kFigure},
                {"ttft", "TTFT p99 ms, predicted", Shown::kFigure},
                {"ttft_measured", "measured", Shown::kFigure},
                {"tpot", "TPOT ms, predicted", Shown::kFigure},
                {"tpot_measured", "measured", Shown::kFigure},
                {"visits", "visits", Shown::kCount}},
               rows);
}

std::vector<Column> Columns() {
  return {
      {"key", "configuration", Shown::kLayout},     {"gpus", "GPUs", Shown::kCount},
      {"tokens_per_s", "tokens/s", Shown::kFigure}, {"ttft_p99", "TTFT p99, ms", Shown::kFigure},
      {"tpot_mean", "TPOT, ms", Shown::kFigure},    {"itl_p99", "ITL p99, ms", Shown::kFigure},
      {"per_gpu", "tokens/s/GPU", Shown::kFigure},  {"per_user", "tokens/s/user", Shown::kFigure},
      {"memory", "memory", Shown::kBytes}};
}

std::string TableOf(const nlohmann::json& evaluations) {
  nlohmann::json rows = nlohmann::json::array();
  for (const nlohmann::json& each : evaluations) rows.push_back(RowJson(each));
  return Table(Columns(), rows);
}

}  // namespace

nlohmann::json ToJson(const ServingEvaluation& evaluation) {
  const ServingPrediction& prediction = evaluation.prediction;
  nlohmann::json predicted = ToJson(prediction.report);
  predicted.erase("schema_version");
  return {{"key", evaluation.candidate.Key()},
          {"replicas", evaluation.candidate.config.layout.dp},
          {"prefill", evaluation.candidate.config.prefill},
          {"gpus", evaluation.candidate.gpus()},
          {"serving", ToJson(evaluation.candidate.config)},
          {"meets_requirements", evaluation.meets()},
          {"predicted", std::move(predicted)},
          {"tokens_per_s_per_gpu", TokensPerSecondAndGpu(evaluation)},
          {"tokens_per_s_per_user", TokensPerSecondAndUser(evaluation)},
          {"memory_bytes",
           {{"weights", evaluation.memory.weights},
            {"cache", evaluation.memory.cache},
            {"step", evaluation.memory.step},
            {"draft", evaluation.memory.draft},
            {"total", evaluation.memory.total()}}},
          {"cache_tokens",
           evaluation.candidate.config.cache_blocks * evaluation.candidate.config.block_size},
          {"preemptions", prediction.preemptions},
          {"most_running", prediction.most_running},
          {"most_waiting", prediction.most_waiting},
          {"busy_share", prediction.busy_share},
          {"breakdown_s", BreakdownJson(prediction)},
          {"moved_requests", prediction.moved},
          {"proposed_tokens", prediction.proposed},
          {"accepted_tokens", prediction.accepted}};
}

std::vector<std::string> Relaxations(const ServingProblem& problem,
                                     const ServingCandidate& candidate, const LoadReport& report) {
  const Service service = {.report = report,
                           .perplexity_rise = problem.PerplexityRiseOf(candidate.config)};
  std::vector<std::string> relaxed;
  for (const Requirement& each : problem.requirements) {
    if (each.Strain(service) >= 1) relaxed.push_back(each.Relaxed(each.ValueIn(service)));
  }
  return relaxed;
}

nlohmann::json ServingProblemJson(const ServingProblem& problem) {
  nlohmann::json json = ProblemJson(problem);
  std::vector<std::string> weights, caches;
  for (const WeightFormat each : problem.weights) weights.emplace_back(Name(each));
  for (const DType each : problem.caches) caches.push_back(CacheName(each));
  json["weights"] = weights;
  json["caches"] = caches;
  json["allowed"] = problem.allowed;
  json["model"] = trimtab::ToJson(problem.model);
  if (problem.draft) json["speculation"]["draft"] = trimtab::ToJson(*problem.draft);
  nlohmann::json& requests = json["requests"] = nlohmann::json::array();
  for (const LoadRequest& each : problem.load.requests) {
    requests.push_back({each.at_s, each.prompt_tokens, each.output_tokens, each.shared_tokens});
  }
  return json;
}

nlohmann::json ServingReportJson(const ServingProblem& problem, const ServingSearchResult& result,
                                 const ServingProof* proof) {
  nlohmann::json ranking = nlohmann::json::array();
  for (const ServingEvaluation& each : result.ranking) {
    nlohmann::json& shown = ranking.emplace_back(ToJson(each));
    AddPrice(problem, each.candidate, each.prediction.report, shown);
  }
  nlohmann::json frontier = nlohmann::json::array();
  for (const ServingEvaluation* each : ServingFrontier(result)) frontier.push_back(ToJson(*each));
  size_t place = 0;
  const LoadReport* seen = &result.best().prediction.report;
  const bool proved = proof != nullptr && proof->winner;
  if (proved) {
    for (const ProvedServing& each : proof->proved) AddMeasured(each, ranking[each.place]);
    place = proof->proved[*proof->winner].place;
    seen = &proof->proved[*proof->winner].report;
  }
  nlohmann::json recommended = ranking[place];
  const ServingCandidate& candidate = result.ranking[place].candidate;
  recommended["binds"] = WhatBinds(problem, result, result.ranking[place]);
  AddPrice(problem, candidate, *seen, recommended);
  recommended["relaxations"] = Relaxations(problem, candidate, *seen);
  if (problem.limits_quality()) {
    recommended["perplexity_rise"] = problem.PerplexityRiseOf(candidate.config);
  }
  recommended["meets_requirements"] = recommended["relaxations"].empty();
  recommended["proved"] = proved;
  recommended["sure"] = proved && proof->sure;
  return {{"schema_version", 1},
          {"for", "serving"},
          {"problem", ProblemJson(problem)},
          {"space",
           {{"size", result.size},
            {"cut_by_rule", result.cut_by_rule},
            {"cut_by_memory", result.cut_by_memory},
            {"cut_by_bound", result.cut_by_bound},
            {"cut_on_the_way", result.cut_on_the_way},
            {"alike", result.alike},
            {"simulated", result.simulated}}},
          {"seconds", result.seconds},
          {"recommended", std::move(recommended)},
          {"frontier", std::move(frontier)},
          {"ranking", std::move(ranking)}};
}

std::string ServingReportHtml(const nlohmann::json& report) {
  const nlohmann::json& problem = report["problem"];
  const nlohmann::json& best = report["recommended"];
  const std::string title = fmt::format("Serving {} on {}", EscapedText(problem["model"]),
                                        EscapedText(problem["cluster"]));
  std::string body = fmt::format(
      "<h1>{}</h1>\n<p>{}; best is {}.</p>\n<p>Recommended: {} on {} "
      "GPUs.</p>\n<p>{}.</p>\n",
      title, EscapedText(problem["workload"]), EscapedText(problem["objective"]),
      LayoutHtml(best["key"].get<std::string>()), best["gpus"].get<int64_t>(),
      EscapedText(best["binds"]));
  if (best.contains("price_per_million_tokens")) {
    body += fmt::format("<p>A million output tokens cost {:.4g}.</p>\n",
                        best["price_per_million_tokens"].get<double>());
  }
  if (!best["meets_requirements"].get<bool>()) {
    std::vector<std::string> relaxed;
    for (const nlohmann::json& each : best["relaxations"]) relaxed.push_back(EscapedText(each));
    body += fmt::format(
        "<p>Nothing meets the requirements. This comes closest; it would meet {}."
        "</p>\n",
        Listed(relaxed));
  }
  const nlohmann::json& space = report["space"];
  body += fmt::format(
      "<p>{} candidates: {} simulated, {} would run like one of these, {} cannot be better (by "
      "bounds), {} stopped during simulation as they cannot become better, {} do not fit.</p>\n",
      space["size"].get<int64_t>(), space["simulated"].get<int64_t>(),
      space["alike"].get<int64_t>(), space["cut_by_bound"].get<int64_t>(),
      space["cut_on_the_way"].get<int64_t>(), space["cut_by_memory"].get<int64_t>());
  std::vector<std::string> rules;
  for (const auto& [rule, count] : space["cut_by_rule"].items()) {
    rules.push_back(fmt::format("{} by {}", count.get<int64_t>(), EscapedText(rule)));
  }
  if (!rules.empty()) body += fmt::format("<p>Left out: {}.</p>\n", Listed(rules));
  body += MeasuredTable(report["ranking"]);
  body += "<h2>Frontier</h2>\n<p>None is better for both the GPU and the user.</p>\n" +
          TableOf(report["frontier"]) + "<h2>Ranking</h2>\n" + TableOf(report["ranking"]);
  return PageHtml(title, body);
}

void WriteServingReport(const nlohmann::json& report, const std::string& directory) {
  WriteReportFiles(report.dump(2) + "\n", ServingReportHtml(report), directory);
}

}  // namespace trimtab
