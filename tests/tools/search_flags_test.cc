// Every flag of `search` that all workloads share does the same for each of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "search/study/study.h"
#include "tests/tools/run_cli.h"

namespace trimtab {
namespace {

using Words = std::vector<std::string>;

struct Asked {
  const char* name;
  Words problem;
  const char* fix;      // leaves something
  const char* require;  // is met
};
const Asked kWorkloads[] = {
    {"training",
     {"--model", "gpt2-124m", "--cluster", "8xh100", "--gbs", "32", "--seq", "512"},
     "tp=2",
     "gpus<=8"},
    {"serving",
     {"--for", "serving", "--model", "gpt2-124m", "--cluster", "8xh100", "--workload", "64/16",
      "--requests", "16", "--concurrency", "4"},
     "tp=2",
     "throughput>1"}};

/// The flags that help lists.
std::set<std::string> FlagsOf(const Words& words) {
  Words help = words;
  help.emplace_back("--help");
  std::set<std::string> flags;
  std::istringstream stream(RunCli(help).out);
  for (std::string line; std::getline(stream, line);) {
    const size_t at = line.find("--");
    if (!line.starts_with("  -") || at == std::string::npos) continue;
    flags.insert(line.substr(at, line.find(' ', at) - at));
  }
  return flags;
}

class SearchFlags : public testing::TestWithParam<Asked> {
 protected:
  SearchFlags() : folder_(testing::TempDir() + "/flags_" + GetParam().name) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  CliResult Search(const Words& more, const std::string& study) const {
    Words words = {"search", "-q", "--prove", "0", "--study", folder_ + "/" + study};
    words.insert(words.end(), GetParam().problem.begin(), GetParam().problem.end());
    words.insert(words.end(), more.begin(), more.end());
    return RunCli(words);
  }

  std::string folder_;
};

TEST(SearchFlagsOfAll, AreDeclaredForEveryWorkload) {
  const std::set<std::string> training = FlagsOf({"search"});
  const std::set<std::string> serving = FlagsOf({"search", "--for", "serving"});
  for (const char* flag : {"--fix",
                           "--allow",
                           "--forbid",
                           "--space",
                           "--gpus",
                           "--max-ranks",
                           "--memory-per-rank",
                           "--objective",
                           "--require",
                           "--indifference",
                           "--prove",
                           "--rounds",
                           "--visits",
                           "--visit-limit",
                           "--budget",
                           "--gpu-minutes",
                           "--launcher",
                           "--launcher-options",
                           "--plan",
                           "--study",
                           "--resume",
                           "--seed-study",
                           "--dashboard",
                           "--report",
                           "--top",
                           "--json",
                           "--stack",
                           "--cluster",
                           "--profile"}) {
    EXPECT_TRUE(training.contains(flag)) << flag;
    EXPECT_TRUE(serving.contains(flag)) << flag;
  }
}

TEST_P(SearchFlags, EachIsTaken) {
  const Asked& asked = GetParam();
  const Words cases[] = {{"--fix", asked.fix},
                         {"--allow", "tp=1,2,4"},
                         {"--forbid", "tp=8"},
                         {"--gpus", "4,8"},
                         {"--max-ranks", "4"},
                         {"--memory-per-rank", "20GiB"},
                         {"--objective", "cost"},
                         {"--require", asked.require},
                         {"--indifference", "2%"},
                         {"--rounds", "3"},
                         {"--visits", "3"},
                         {"--visit-limit", "60"},
                         {"--budget", "600"},
                         {"--gpu-minutes", "1"},
                         {"--launcher", "local"},
                         {"--dashboard"},
                         {"--report", folder_ + "/report"},
                         {"--top", "2"},
                         {"--stack", "trimtab"},
                         {"--json"}};
  int number = 0;
  for (const Words& words : cases) {
    const CliResult result = Search(words, fmt::format("{}.db", ++number));
    EXPECT_EQ(result.exit_code, 0) << words.front() << ": " << result.err;
  }
}

TEST_P(SearchFlags, ValuesThatAreForbiddenOrFixedAreKeptTo) {
  ASSERT_EQ(Search({"--fix", GetParam().fix, "--gpus", "4,8"}, "fixed.db").exit_code, 0);
  const std::unique_ptr<Study> fixed = Study::OpenExisting(folder_ + "/fixed.db");
  for (const CandidateRecord& each : fixed->Candidates()) {
    EXPECT_EQ(each.run.layout.tp, 2) << each.key;
    EXPECT_TRUE(each.run.layout.world_size() == 4 || each.run.layout.world_size() == 8);
  }
  ASSERT_EQ(Search({"--forbid", "tp=1,8"}, "forbidden.db").exit_code, 0);
  const std::unique_ptr<Study> rest = Study::OpenExisting(folder_ + "/forbidden.db");
  for (const CandidateRecord& each : rest->Candidates()) {
    EXPECT_NE(each.run.layout.tp, 1) << each.key;
    EXPECT_NE(each.run.layout.tp, 8) << each.key;
  }
}

TEST_P(SearchFlags, TheSpaceIsDescribed) {
  const CliResult result = Search({"--space", "--json"}, "space.db");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json space = nlohmann::json::parse(result.out);
  EXPECT_GT(space.at("legal"), 0);
  EXPECT_GE(space.at("size"), space.at("legal"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/space.db"));
}

TEST_P(SearchFlags, AStudyIsResumedReportedAndOfOneProblem) {
  ASSERT_EQ(Search({}, "one.db").exit_code, 0);
  EXPECT_EQ(Search({}, "one.db").exit_code, 2) << "it is there already";
  EXPECT_EQ(Search({"--resume"}, "one.db").exit_code, 0);
  EXPECT_EQ(Search({"--resume", "--memory-per-rank", "10GiB"}, "one.db").exit_code, 3);
  const CliResult report =
      RunCli({"report", "--study", folder_ + "/one.db", "--out", folder_ + "/out", "-q"});
  ASSERT_EQ(report.exit_code, 0) << report.err;
  const nlohmann::json told = nlohmann::json::parse(std::ifstream(folder_ + "/out/report.json"));
  EXPECT_EQ(told.at("for"), GetParam().name);
  EXPECT_EQ(told.at("recommended").at("rank"), 1);
}

TEST_P(SearchFlags, TrialsNeedTheMachine) {
  Words words = {"search", "-q", "--prove", "1", "--study", folder_ + "/proved.db"};
  words.insert(words.end(), GetParam().problem.begin(), GetParam().problem.end());
  const CliResult result = RunCli(words);
  EXPECT_EQ(result.exit_code, 6) << result.err;
}

TEST_P(SearchFlags, WrongValuesAreRefused) {
  EXPECT_EQ(Search({"--fix", "tpp=2"}, "a.db").exit_code, 2);
  EXPECT_EQ(Search({"--fix", "tp=1,2"}, "b.db").exit_code, 2);
  EXPECT_EQ(Search({"--require", "beauty>3"}, "c.db").exit_code, 2);
  EXPECT_EQ(Search({"--gpus", "3000"}, "d.db").exit_code, 2);
  EXPECT_EQ(Search({"--launcher", "kubernetes"}, "e.db").exit_code, 2);
  EXPECT_EQ(Search({"--seed-study", folder_ + "/none.db"}, "f.db").exit_code, 3);
}

INSTANTIATE_TEST_SUITE_P(Workloads, SearchFlags, testing::ValuesIn(kWorkloads),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace trimtab
