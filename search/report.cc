#include "search/report.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/config/rules.h"

namespace trimtab {
namespace {

constexpr int kReportSchemaVersion = 3;

std::string DescriptionOf(const std::string& rule_id) {
  for (const Rule& rule : LegalityRules()) {
    if (rule_id == rule.id) return rule.description;
  }
  return rule_id == "memory" ? "A rank's predicted peak memory is within the limit." : "";
}

nlohmann::json SpaceJson(const SpaceSummary& space) {
  nlohmann::json pruned = nlohmann::json::array();
  for (const auto& [rule, count] : space.pruned) {
    pruned.push_back({{"rule", rule}, {"count", count}, {"description", DescriptionOf(rule)}});
  }
  return {{"enumerated", space.enumerated}, {"feasible", space.feasible}, {"pruned", pruned}};
}

template <typename T>
nlohmann::json OrNull(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

/// A measurement with its MFU against the peak that the prediction knows.
nlohmann::json MeasuredJson(const CandidateRecord& candidate) {
  if (!candidate.measured) return nullptr;
  Measurement measured = *candidate.measured;
  const double peak = candidate.prediction()->peak_flops_per_rank;
  measured.mfu = peak > 0 ? measured.model_tflops_per_gpu * 1e12 / peak : 0;
  nlohmann::json json = ToJson(measured);
  json["tokens_per_s_as_clocked"] = measured.tokens_per_s;
  return json;
}

/// The figure that the order goes by: the measured one where there is one.
nlohmann::json FigureJson(const CandidateRecord& candidate) {
  const Prediction& prediction = *candidate.prediction();
  if (candidate.measured) {
    return {{"tokens_per_s", candidate.measured->tokens_per_s},
            {"low", nullptr},
            {"high", nullptr},
            {"trust", "measured"}};
  }
  const double tokens = prediction.tokens_per_s * prediction.step_time_s;
  return {{"tokens_per_s", prediction.tokens_per_s},
          {"low", tokens / prediction.step_time_high_s},
          {"high", tokens / prediction.step_time_low_s},
          {"trust", prediction.trust}};
}

std::string Standing(const std::string& state, size_t rank) {
  if (state == "predicted") return state;
  if (state != "measured") return "failed";
  return rank == 0 ? "best" : "behind";
}

/// Nothing is raced yet: every finalist is measured once.
nlohmann::json RaceJson() {
  return {{"ended", "not_run"},
          {"indifference", 0.01},
          {"confidence", 0.95},
          {"rounds", 0},
          {"visits", 0},
          {"tied", nlohmann::json::array()},
          {"unseparated", nlohmann::json::array()},
          {"probe", {{"exponent", 1.0}, {"stands_for_steps", true}, {"note", ""}}},
          {"throttled_modes", nlohmann::json::array()}};
}

nlohmann::json RowJson(const SearchResult& result, size_t rank) {
  const RankingRow& row = result.ranking[rank];
  const CandidateRecord& candidate = result.candidates[row.candidate];
  nlohmann::json prediction = ToJson(*candidate.prediction());
  prediction["tier"] = row.prediction_tier;
  prediction["corrected"] = candidate.corrected;
  return {
      {"rank", rank + 1},
      {"layout", row.layout},
      {"precision", row.precision},
      {"optimizer_state", row.optimizer_state},
      {"ranks", candidate.run.layout.world_size()},
      {"threads_per_rank", candidate.run.threads_per_rank},
      {"state", row.state},
      {"message", candidate.last_message},
      {"figure", FigureJson(candidate)},
      {"standing", Standing(row.state, rank)},
      {"visits", candidate.measured ? 1 : 0},
      {"against_best", nullptr},
      {"predicted", prediction},
      {"measured", MeasuredJson(candidate)},
      {"error",
       {{"step_time", OrNull(row.step_time_error)}, {"peak_mem", OrNull(row.peak_mem_error)}}},
  };
}

nlohmann::json NumericsJson(const SearchResult& result) {
  nlohmann::json rows = nlohmann::json::array();
  for (const NumericsRow& each : result.numerics) {
    const RankingRow& best = result.ranking[each.row];
    rows.push_back({{"precision", each.precision},
                    {"precision_means", each.precision_means},
                    {"optimizer_state", each.optimizer_state},
                    {"optimizer_state_means", each.optimizer_state_means},
                    {"best", {{"layout", best.layout}, {"state", best.state}}},
                    {"extra_cost", each.extra_cost}});
  }
  return rows;
}

nlohmann::json BindsJson(const SearchResult& result) {
  const Recommendation& choice = result.recommendation;
  const Prediction& prediction = *result.recommended_candidate().prediction();
  const auto compute = prediction.breakdown_s.find("compute");
  const double share =
      compute == prediction.breakdown_s.end() ? 0 : compute->second / prediction.step_time_s;
  return {{"what", choice.binds},
          {"share", choice.binds_share},
          {"compute_share", share},
          {"text", fmt::format("{:.0f} % of the step computes, {:.1f} % is {}", share * 100,
                               choice.binds_share * 100, choice.binds)}};
}

nlohmann::json RecommendedJson(const SearchResult& result) {
  const Recommendation& choice = result.recommendation;
  nlohmann::json recommended = RowJson(result, choice.row);
  recommended["run"] = ToJson(result.recommended_candidate().run);
  recommended["limit_bytes"] = nullptr;
  recommended["headroom_bytes"] = nullptr;
  recommended["default"] = nullptr;
  recommended["binds"] = BindsJson(result);
  recommended["alternative"] = nullptr;
  if (choice.alternative) {
    recommended["alternative"] = {{"layout", result.ranking[*choice.alternative].layout},
                                  {"extra_cost", choice.alternative_cost},
                                  {"low", nullptr},
                                  {"high", nullptr}};
  }
  recommended["contender"] = nullptr;
  if (choice.contender) {
    recommended["contender"] = {{"layout", result.ranking[*choice.contender].layout},
                                {"expected_gain", choice.contender_gain}};
  }
  return recommended;
}

}  // namespace

nlohmann::json ReportJson(const SearchResult& result) {
  nlohmann::json ranking = nlohmann::json::array();
  int64_t measured = 0;
  int64_t failed = 0;
  for (size_t i = 0; i < result.ranking.size(); ++i) {
    ranking.push_back(RowJson(result, i));
    const std::string& state = result.ranking[i].state;
    if (state == "measured") ++measured;
    if (state != "measured" && state != "predicted") ++failed;
  }
  const Accuracy& accuracy = result.accuracy;
  return {
      {"schema_version", kReportSchemaVersion},
      {"study", result.study_path},
      {"versions",
       std::map<std::string, std::string>(result.versions.begin(), result.versions.end())},
      {"problem", nlohmann::json::parse(result.problem)},
      {"profile", {{"name", result.profile_name}, {"measured_on", result.profile_measured_on}}},
      {"objective", Name(result.objective)},
      {"space", SpaceJson(result.space)},
      {"proof",
       {{"planned", result.to_prove},
        {"measured", measured},
        {"failed", failed},
        {"partial", result.partial},
        {"partial_reason", result.partial_reason}}},
      {"race", RaceJson()},
      {"machine", nullptr},
      {"accuracy",
       {{"proved", accuracy.proved},
        {"median_step_time_error", accuracy.median_step_time_error},
        {"max_step_time_error", accuracy.max_step_time_error},
        {"max_peak_mem_error", accuracy.max_peak_mem_error}}},
      {"numerics", NumericsJson(result)},
      {"recommended", RecommendedJson(result)},
      {"ranking", ranking},
  };
}

void WriteReport(const SearchResult& result, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    throw StorageError(fmt::format("{}: cannot create: {}", directory, error.message()));
  }
  const nlohmann::json report = ReportJson(result);
  AtomicFile json(directory + "/report.json");
  json.Append(report.dump(2) + "\n");
  json.Commit();
  AtomicFile html(directory + "/REPORT.html");
  html.Append(ReportHtml(report));
  html.Commit();
}

void WriteReportFromStudy(const std::string& study_path, const std::string& directory) {
  WriteReport(ResultFromStudy(*Study::OpenExisting(study_path)), directory);
}

}  // namespace trimtab
