#include "search/report.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "engine/base/error.h"
#include "engine/config/run/run_config.h"
#include "engine/families/load_config.h"
#include "search/page/page.h"
#include "tests/search/schema_check.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

nlohmann::json Schema() {
  std::ifstream file("search/report.schema.json");
  return nlohmann::json::parse(file);
}

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

SearchResult Search(const TrainingSearch& options) {
  FakePredictor predictor;
  FakeRunner runner;
  SearchEvents events;
  return RunSearch(options, predictor, runner, events);
}

TEST(Report, FollowsItsSchemaWhetherProvedOrNot) {
  for (const int64_t prove_count : {0, 1, 3}) {
    TrainingSearch options = TinySearch(ScratchPath("schema.db"));
    options.race.prove_count = prove_count;
    const nlohmann::json report = ReportJson(Search(options));
    EXPECT_EQ(SchemaBreach(Schema(), report), "") << "proved " << prove_count;
    EXPECT_EQ(report["proof"]["measured"], prove_count);
    EXPECT_EQ(report["recommended"]["measured"].is_null(), prove_count == 0);
    EXPECT_EQ(report["recommended"]["alternative"].is_null(), prove_count == 1);
    EXPECT_FALSE(report["explanation"].empty());
    EXPECT_TRUE(report["front"]["rows"].empty()) << "the ranks of a cpu share one machine";
  }
}

TEST(Report, FollowsItsSchemaWhenNarrowedOrPartial) {
  TrainingSearch options = TinySearch(ScratchPath("narrowed.db"));
  options.problem.narrowings = ParseNarrowings({"tp=1", "2"}, "--allow", /*forbidden=*/false);
  const auto forbidden = ParseNarrowings({"schedule=gpipe"}, "--forbid", /*forbidden=*/true);
  options.problem.narrowings.push_back(forbidden.front());
  options.problem.global_batches = {2, 4};
  options.most_visits = 2;
  FakePredictor predictor;
  FakeRunner runner;
  runner.slowness = 10;
  SearchEvents events;
  const nlohmann::json report = ReportJson(RunSearch(options, predictor, runner, events));
  EXPECT_EQ(SchemaBreach(Schema(), report), "");
  EXPECT_TRUE(report["proof"]["partial"]);
  EXPECT_EQ(report["problem"]["narrowings"].size(), 2u);
}

TEST(Report, TrainingTakesWhatWasMeasured) {
  TrainingSearch options = TinySearch(ScratchPath("training.db"));
  options.problem.tokens = 1e9;
  const nlohmann::json predicted = [&] {
    TrainingSearch unproved = options;
    unproved.study_path = ScratchPath("unproved.db");
    unproved.race.prove_count = 0;
    return ReportJson(Search(unproved))["recommended"];
  }();
  // Fast enough as predicted, too slow as measured.
  const double days = predicted["training"]["days"].get<double>() * 2;
  options.problem.requirements = ParseTrainingRequirements(fmt::format("days<={:.9g}", days));
  FakePredictor predictor;
  FakeRunner runner;
  runner.slowness = 10;
  SearchEvents events;
  const nlohmann::json report = ReportJson(RunSearch(options, predictor, runner, events));
  EXPECT_EQ(SchemaBreach(Schema(), report), "");
  const nlohmann::json& recommended = report["recommended"];
  EXPECT_EQ(recommended["figure"]["trust"], "measured");
  const double expected = predicted["training"]["days"].get<double>() *
                          predicted["figure"]["tokens_per_s"].get<double>() /
                          recommended["figure"]["tokens_per_s"].get<double>();
  EXPECT_NEAR(recommended["training"]["days"].get<double>() / expected, 1, 1e-6);
  EXPECT_GT(recommended["training"]["days"].get<double>(), days);
  ASSERT_EQ(recommended["training"]["unmet"].size(), 1u);
  EXPECT_TRUE(recommended["training"]["unmet"][0].get<std::string>().starts_with("days<="));
  EXPECT_TRUE(
      ReportJson(Search(TinySearch(ScratchPath("plain.db"))))["recommended"]["training"].is_null());
}

TEST(Report, TheSchemaNoticesBreaches) {
  const nlohmann::json good = ReportJson(Search(TinySearch(ScratchPath("breach.db"))));
  const auto broken = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json report = good;
    report[nlohmann::json::json_pointer(pointer)] = value;
    return SchemaBreach(Schema(), report);
  };
  EXPECT_EQ(broken("/schema_version", 1), "$.schema_version: is 1");
  EXPECT_EQ(broken("/space/feasible", 0), "$.space.feasible: too small");
  EXPECT_EQ(broken("/ranking/0/state", "great"), "$.ranking[0].state: is \"great\"");
  EXPECT_EQ(broken("/recommended/extra", 1), "$.recommended.extra: not in the schema");
  EXPECT_NE(broken("/ranking/0/predicted/tier", nullptr), "");
  nlohmann::json report = good;
  report.erase("proof");
  EXPECT_EQ(SchemaBreach(Schema(), report), "$: lacks proof");
}

TEST(Report, TellsWhatEachPrecisionIsAndCosts) {
  TrainingSearch options = TinySearch(ScratchPath("numerics.db"));
  options.problem.precisions = {Precision::kFp32, Precision::kBf16};
  options.problem.optimizer_states = {"full", "reduced"};
  const SearchResult result = Search(options);
  const nlohmann::json report = ReportJson(result);
  EXPECT_EQ(SchemaBreach(Schema(), report), "");
  std::set<std::string> rows;
  for (const nlohmann::json& row : report["numerics"]) {
    rows.insert(row["precision"].get<std::string>() + " " +
                row["optimizer_state"].get<std::string>());
    EXPECT_FALSE(row["precision_means"].get<std::string>().empty());
    EXPECT_NE(row["optimizer_state_means"].get<std::string>().find("bytes a parameter"),
              std::string::npos);
  }
  EXPECT_EQ(rows,
            (std::set<std::string>{"fp32 full", "fp32 reduced", "bf16 full", "bf16 reduced"}));
  EXPECT_EQ(report["recommended"]["precision"],
            report["recommended"]["run"]["layout"]["precision"]);
  EXPECT_EQ(report["numerics"][0]["extra_cost"], 0) << "the best of all is the recommended one";
  const std::string html = ReportHtml(report, MakeFindings(result));
  EXPECT_NE(html.find("16-bit remainder"), std::string::npos);
}

TEST(Report, TheRecommendedRunCanBeLoaded) {
  const std::string directory = ScratchPath("loaded");
  const SearchResult result = Search(TinySearch(ScratchPath("loaded.db")));
  WriteReport(result, directory);
  EXPECT_EQ(LoadRunConfig(directory + "/report.json"), result.recommended_candidate().run);
}

TEST(Report, IsRemadeFromTheStudyAlone) {
  const std::string study = ScratchPath("remade.db");
  const std::string first = ScratchPath("first");
  const std::string second = ScratchPath("second");
  WriteReport(Search(TinySearch(study)), first);
  WriteReportFromStudy(study, second);
  for (const char* file : {"/report.json", "/REPORT.html"}) {
    EXPECT_EQ(ReadAll(first + file), ReadAll(second + file)) << file;
    EXPECT_GT(ReadAll(first + file).size(), 1000u) << file;
  }
}

TEST(Report, ThePageShowsWhatTheSearchFound) {
  TrainingSearch options = TinySearch(ScratchPath("page.db"));
  options.problem.model.name = "<b>tiny</b>";
  const SearchResult result = Search(options);
  const std::string html = ReportHtml(ReportJson(result), MakeFindings(result));
  EXPECT_EQ(html.find("<b>tiny"), std::string::npos);
  EXPECT_NE(html.find("&lt;b&gt;tiny&lt;/b&gt;"), std::string::npos);
  EXPECT_NE(html.find("id=\"chart-throughput\""), std::string::npos);
}

TEST(Report, AFolderThatCannotBeMadeIsAStorageError) {
  const std::string file = ScratchPath("in_the_way");
  std::ofstream(file) << "x";
  EXPECT_THROW(WriteReport(Search(TinySearch(ScratchPath("way.db"))), file), StorageError);
  EXPECT_THROW(WriteReportFromStudy("/nonexistent.db", file), InputError);
}

}  // namespace
}  // namespace trimtab
