#include "search/report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/config/rules/rules.h"
#include "engine/infer/serving_json.h"
#include "profiler/stats.h"
#include "search/page/page.h"
#include "search/page/report_folder.h"
#include "search/report_json.h"
#include "search/serving/serving_findings.h"

namespace trimtab {
namespace {

constexpr int kReportSchemaVersion = 9;

std::string DescriptionOf(const std::string& rule_id) {
  for (const Rule& rule : LegalityRules()) {
    if (rule_id == rule.id) return rule.description;
  }
  for (const ServingRule& rule : ServingRules()) {
    if (rule_id == rule.id) return rule.description;
  }
  if (rule_id == kTensorRule)
    return "Tensor parallelism stays within the GPUs that a fast link joins.";
  if (rule_id == kLimitsRule) return "A step has at least one row for each sequence.";
  if (rule_id == kPrefillRule) return "Some replica brings answers on.";
  if (rule_id.starts_with("require-")) return "The run keeps to what --require says.";
  if (rule_id.starts_with("perplexity")) return "What --require says of the loss of quality.";
  return rule_id == "memory" ? "A rank's predicted peak memory is within the limit." : "";
}

nlohmann::json SpaceJson(const SpaceSummary& space) {
  nlohmann::json pruned = nlohmann::json::array();
  for (const auto& [rule, count] : space.pruned) {
    pruned.push_back({{"rule", rule}, {"count", count}, {"description", DescriptionOf(rule)}});
  }
  return {{"size", space.size},
          {"visited", space.visited},
          {"feasible", space.feasible},
          {"cut_by_rule", space.cut_by_rule},
          {"cut_by_memory", space.cut_by_memory},
          {"cut_by_bound", space.cut_by_bound},
          {"unexplored", space.unexplored},
          {"gap", space.gap},
          {"pruned", pruned}};
}

/// A measurement at the calibrated speed of the machine, with its MFU against the peak that the
/// prediction knows.
nlohmann::json MeasuredJson(const CandidateRecord& candidate) {
  if (!candidate.measured) return nullptr;
  Measurement measured = *candidate.measured;
  const double peak = candidate.prediction()->peak_flops_per_rank;
  measured.mfu = peak > 0 ? measured.model_tflops_per_gpu * 1e12 / peak : 0;
  std::vector<double> as_clocked;
  for (const VisitRecord& visit : candidate.visits) {
    as_clocked.push_back(visit.measurement.tokens_per_s);
  }
  nlohmann::json json = ToJson(measured);
  json.erase("blocks");      // of single visits, which stand under machine
  json.erase("stragglers");  // likewise, under race
  json["tokens_per_s_as_clocked"] = as_clocked.empty() ? measured.tokens_per_s : Median(as_clocked);
  return json;
}

nlohmann::json WorseJson(const std::optional<RankingRow::Worse>& worse) {
  if (!worse) return nullptr;
  // As throughput: 0.975 = as many tokens for what the best takes for 1.
  return {{"ratio", 1 / (1 + worse->by)},
          {"low", worse->high ? nlohmann::json(1 / (1 + *worse->high)) : nullptr},
          {"high", worse->low ? nlohmann::json(1 / (1 + *worse->low)) : nullptr}};
}

/// Describes the service of a row beside its figures; null of training.
nlohmann::json ServiceJson(const SearchResult& result, const RankingRow& row) {
  const CandidateRecord& candidate = result.candidates[row.candidate];
  if (!candidate.serving) return nullptr;
  const ServingConfig& serving = *candidate.serving;
  const LoadReport& report = ReportOf(candidate);
  const int64_t gpus = candidate.run.layout.world_size();
  const double rate = row.figure.tokens_per_s;
  return {{"replicas", serving.layout.dp},
          {"prefill", serving.prefill},
          {"cache_tokens", serving.cache_blocks * serving.block_size},
          {"meets_requirements", candidate.strain == 0},
          {"tokens_per_s_per_gpu", rate / static_cast<double>(gpus)},
          {"tokens_per_s_per_user", SpeedOf(report, gpus).per_user},
          {"price_per_million_tokens",
           OrNull(PricePerMillionTokens(result.serving->problem.cluster, gpus, rate))}};
}

nlohmann::json RowJson(const SearchResult& result, size_t rank) {
  const RankingRow& row = result.ranking[rank];
  const CandidateRecord& candidate = result.candidates[row.candidate];
  nlohmann::json prediction = ToJson(*candidate.prediction());
  prediction["tier"] = row.prediction_tier;
  prediction["corrected"] = candidate.corrected.has_value();
  return {
      {"rank", rank + 1},
      {"layout", row.layout},
      {"precision", row.precision},
      {"optimizer_state", row.optimizer_state},
      {"ranks", candidate.run.layout.world_size()},
      {"global_batch", candidate.run.global_batch},
      {"threads_per_rank", std::max<int64_t>(1, candidate.run.threads_per_rank)},
      {"state", row.StateName()},
      {"message", candidate.last_message},
      {"figure",
       {{"tokens_per_s", row.figure.tokens_per_s},
        {"low", OrNull(row.figure.low)},
        {"high", OrNull(row.figure.high)},
        {"trust", Name(row.figure.trust)}}},
      {"standing", Name(row.standing)},
      {"visits", row.visits},
      {"against_best", WorseJson(row.against_best)},
      {"why_below", row.why_below},
      {"predicted", prediction},
      {"measured", MeasuredJson(candidate)},
      {"error",
       {{"step_time", OrNull(row.step_time_error)}, {"peak_mem", OrNull(row.peak_mem_error)}}},
      {"service", ServiceJson(result, row)},
  };
}

int64_t BatchOf(const SearchResult& result, size_t row) {
  return result.candidates[result.ranking[row].candidate].run.global_batch;
}

nlohmann::json NumericsJson(const SearchResult& result) {
  nlohmann::json rows = nlohmann::json::array();
  for (const NumericsRow& each : result.numerics) {
    const RankingRow& best = result.ranking[each.row];
    rows.push_back({{"precision", each.precision},
                    {"precision_means", each.precision_means},
                    {"optimizer_state", each.optimizer_state},
                    {"optimizer_state_means", each.optimizer_state_means},
                    {"best",
                     {{"layout", best.layout},
                      {"global_batch", BatchOf(result, each.row)},
                      {"state", best.StateName()}}},
                    {"extra_cost", each.extra_cost}});
  }
  return rows;
}

nlohmann::json ExplanationJson(const SearchResult& result) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Explanation& each : result.explanations) {
    rows.push_back({{"dimension", each.dimension},
                    {"chosen", each.chosen},
                    {"value", each.value},
                    {"layout", result.candidates[each.other].key},
                    {"extra_cost", each.extra_cost}});
  }
  return rows;
}

nlohmann::json RecipesJson(const SearchResult& result) {
  nlohmann::json rows = nlohmann::json::array();
  for (const RecipePlace& each : result.recipes) {
    const Prediction* const its = each.prediction ? &*each.prediction : nullptr;
    rows.push_back(
        {{"source", each.source},
         {"layout", each.layout},
         {"global_batch", each.global_batch > 0 ? nlohmann::json(each.global_batch) : nullptr},
         {"refused", each.refused},
         {"tokens_per_s", its ? nlohmann::json(its->tokens_per_s) : nullptr},
         {"peak_mem_bytes", its ? nlohmann::json(its->peak_mem_bytes) : nullptr},
         {"extra_cost", OrNull(each.extra_cost)}});
  }
  return rows;
}

nlohmann::json FrontJson(const SearchResult& result) {
  nlohmann::json rows = nlohmann::json::array();
  for (const FrontRow& each : result.front) {
    const RankingRow& row = result.ranking[each.row];
    rows.push_back({{"gpus", each.gpus},
                    {"layout", row.layout},
                    {"global_batch", BatchOf(result, each.row)},
                    {"tokens_per_s", row.figure.tokens_per_s},
                    {"trust", Name(row.figure.trust)},
                    {"hours", each.hours},
                    {"gpu_hours", each.gpu_hours},
                    {"price", OrNull(each.price)},
                    {"energy_kwh", OrNull(each.energy_kwh)},
                    {"on_front", each.on_front}});
  }
  return {{"tokens", result.tokens}, {"rows", rows}};
}

nlohmann::json RecommendedJson(const SearchResult& result) {
  const Recommendation& choice = result.recommendation;
  nlohmann::json recommended = RowJson(result, choice.row);
  if (result.serving) {
    const ServingResult& serving = *result.serving;
    recommended["serving"] = ToJson(*result.recommended_candidate().serving);
    recommended["relaxations"] = serving.relaxations;
    recommended["perplexity_rise"] = OrNull(serving.perplexity_rise);
  } else {
    recommended["run"] = ToJson(result.recommended_candidate().run);
  }
  recommended["binds"] = {{"what", choice.binds.what},
                          {"share", choice.binds.share},
                          {"compute_share", choice.binds.compute_share},
                          {"text", result.serving ? result.serving->binds : choice.binds.text}};
  const int64_t limit = result.recommended_candidate().run.memory_per_rank_bytes;
  recommended["limit_bytes"] = limit > 0 ? nlohmann::json(limit) : nullptr;
  recommended["headroom_bytes"] =
      limit > 0 ? nlohmann::json(limit - result.recommended().peak_mem_bytes()) : nullptr;
  recommended["default"] = nullptr;
  if (choice.plain) {
    const RankingRow& plain = result.ranking[*choice.plain];
    recommended["default"] = {{"layout", plain.layout},
                              {"tokens_per_s", plain.figure.tokens_per_s},
                              {"trust", Name(plain.figure.trust)},
                              {"gain", choice.plain_gain}};
  }
  recommended["training"] = nullptr;
  if (result.training) {
    recommended["training"] = {{"tokens", result.tokens},
                               {"days", result.training->hours / 24},
                               {"gpu_hours", result.training->gpu_hours},
                               {"price", OrNull(result.training->price)},
                               {"unmet", result.unmet}};
  }
  recommended["alternative"] = nullptr;
  if (choice.alternative) {
    recommended["alternative"] = {{"layout", result.ranking[*choice.alternative].layout},
                                  {"global_batch", BatchOf(result, *choice.alternative)},
                                  {"extra_cost", choice.alternative_cost.by},
                                  {"low", OrNull(choice.alternative_cost.low)},
                                  {"high", OrNull(choice.alternative_cost.high)}};
  }
  recommended["contender"] = nullptr;
  if (choice.contender) {
    recommended["contender"] = {{"layout", result.ranking[*choice.contender].layout},
                                {"global_batch", BatchOf(result, *choice.contender)},
                                {"expected_gain", choice.contender_gain}};
  }
  return recommended;
}

nlohmann::json FrontierJson(const SearchResult& result) {
  nlohmann::json rows = nlohmann::json::array();
  if (!result.serving) return rows;
  for (const size_t row : result.serving->frontier) rows.push_back(RowJson(result, row));
  return rows;
}

}  // namespace

nlohmann::json ReportJson(const SearchResult& result) {
  nlohmann::json ranking = nlohmann::json::array();
  int64_t measured = 0;
  int64_t failed = 0;
  for (size_t i = 0; i < result.ranking.size(); ++i) {
    ranking.push_back(RowJson(result, i));
    measured += result.ranking[i].state == RowState::kMeasured ? 1 : 0;
    failed += result.ranking[i].state == RowState::kFailed ? 1 : 0;
  }
  const Accuracy& accuracy = result.accuracy;
  const HardwareProfile& profile = result.problem.cluster.profile;
  return {
      {"schema_version", kReportSchemaVersion},
      {"for", result.serving ? "serving" : "training"},
      {"study", result.study_path},
      {"versions",
       std::map<std::string, std::string>(result.versions.begin(), result.versions.end())},
      {"problem", result.serving ? ToJson(result.serving->problem) : ToJson(result.problem)},
      {"profile", {{"name", profile.name}, {"measured_on", profile.measured_on}}},
      {"objective", Name(result.rules.objective)},
      {"space", SpaceJson(result.space)},
      {"proof",
       {{"planned", result.rules.prove_count},
        {"measured", measured},
        {"failed", failed},
        {"partial", result.partial},
        {"partial_reason", result.partial_reason}}},
      {"race", RaceJson(result)},
      {"machine", MachineJson(result)},
      {"accuracy",
       {{"proved", accuracy.proved},
        {"median_step_time_error", accuracy.median_step_time_error},
        {"max_step_time_error", accuracy.max_step_time_error},
        {"max_peak_mem_error", OrNull(accuracy.max_peak_mem_error)}}},
      {"numerics", NumericsJson(result)},
      {"recommended", RecommendedJson(result)},
      {"explanation", ExplanationJson(result)},
      {"recipes", RecipesJson(result)},
      {"front", FrontJson(result)},
      {"frontier", FrontierJson(result)},
      {"ranking", ranking},
  };
}

void WriteReport(const SearchResult& result, const std::string& directory) {
  const nlohmann::json report = ReportJson(result);
  const std::string page = ReportHtml(report, MakeFindings(result));
  WriteReportFiles(report.dump(2) + "\n", page, directory);
}

void WriteReportFromStudy(const std::string& study_path, const std::string& directory) {
  WriteReport(ResultFromStudy(*Study::OpenExisting(study_path)), directory);
}

}  // namespace trimtab
