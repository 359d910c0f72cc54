// The quickstart's last screen: at most 15 lines, with what was found, how sure, and what is next.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/tools/shell.h"

namespace trimtab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The screen for the sample report, after `change`.
std::string Screen(void (*change)(json& report)) {
  std::ifstream sample("testdata/report/report.json");
  json report = json::parse(sample);
  change(report);
  const fs::path folder = fs::path(testing::TempDir()) / "quickstart";
  fs::create_directories(folder / "report");
  std::ofstream(folder / "report/report.json") << report;
  const Outcome screen =
      Shell(fmt::format("python3 tools/scripts/quickstart_summary.py '{}'", folder.string()));
  EXPECT_EQ(screen.status, 0) << screen.output;
  EXPECT_LE(std::ranges::count(screen.output, '\n'), 15) << screen.output;
  return screen.output;
}

TEST(QuickstartSummary, SaysWhatWasFoundAgainstTheDefault) {
  const std::string screen = Screen([](json&) {});
  EXPECT_NE(screen.find("Found     tp=2,dp=1,mbs=1\n          3968 tokens/s (3938 to 3998)\n"),
            std::string::npos)
      << screen;
  EXPECT_NE(screen.find("Default   tp=1,dp=2,mbs=1 at 2090 tokens/s (calibrated): the found one is "
                        "+90%\n"),
            std::string::npos)
      << screen;
  EXPECT_NE(screen.find("How sure  ahead of every other layout\n"), std::string::npos) << screen;
  EXPECT_NE(screen.find("report/REPORT.html\n"), std::string::npos) << screen;
  EXPECT_NE(screen.find("# measure on\n"), std::string::npos) << screen;
}

TEST(QuickstartSummary, SaysWhatASettledSearchWouldTake) {
  const std::string screen = Screen([](json& report) {
    report["race"]["ended"] = "open";
    report["race"]["unseparated"] = {"a", "b"};
    report["race"]["expected_loss"] = 0.0948;
  });
  EXPECT_NE(screen.find("How sure  not settled: 2 more may be as fast; expected loss 9.5%\n"),
            std::string::npos)
      << screen;
  EXPECT_NE(screen.find("TRIMTAB_SECONDS=300 tools/quickstart "), std::string::npos) << screen;
  EXPECT_NE(screen.find("# settle the search\n"), std::string::npos) << screen;
}

TEST(QuickstartSummary, LeavesOutADefaultThatWasFound) {
  const std::string screen = Screen([](json& report) {
    report["recommended"]["default"]["layout"] = report["recommended"]["layout"];
    report["machine"] = nullptr;
    report["race"]["expected_loss"] = nullptr;
    report["race"]["ended"] = "rounds";
  });
  EXPECT_EQ(screen.find("Default"), std::string::npos) << screen;
  EXPECT_EQ(screen.find("Machine"), std::string::npos) << screen;
  EXPECT_NE(screen.find("How sure  not settled: 0 more may be as fast\n"), std::string::npos)
      << screen;
}

}  // namespace
}  // namespace trimtab
