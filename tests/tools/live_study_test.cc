// Searches that are looked at while they run: reports, a second search, a kill, and what comes
// then.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "search/study/study.h"
#include "tests/tools/processes.h"
#include "tests/tools/shell.h"

namespace trimtab {
namespace {

constexpr std::chrono::seconds kLimit(240);

class LiveStudy : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/live_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  /// Starts `search`; returns once `visited` is true of its study.
  void Start(const std::string& search, const std::function<bool()>& visited) {
    search_ = "env XDG_CACHE_HOME=" + folder_ + " tools/trimtab search -q --resume --study " +
              study() + " " + search;
    driver_ = StartCommand(search_, folder_ + "/log");
    ASSERT_TRUE(WaitFor(kLimit, [&] { return IfEnded(driver_) || (Exists() && visited()); }));
  }

  /// Reports of the running search, refuses a second one, and kills the first.
  void LookAndKill() {
    const nlohmann::json live = Report("live");
    EXPECT_FALSE(live.at("ranking").empty());
    EXPECT_EQ(Shell("sqlite3 -readonly -cmd '.timeout 60000' " + study() + " 'PRAGMA quick_check'")
                  .output,
              "ok\n");
    const Outcome second = Shell(search_);
    EXPECT_EQ(second.status, 7);
    EXPECT_NE(second.output.find("in use by another trimtab, process "), std::string::npos)
        << second.output;
    ASSERT_FALSE(IfEnded(driver_)) << ReadWholeFile(folder_ + "/log");
    kill(driver_, SIGKILL);
    EXPECT_EQ(WaitForEnd(driver_), 128 + SIGKILL);
    EXPECT_FALSE(Report("killed").at("ranking").empty());
  }

  nlohmann::json Report(const std::string& name) const {
    const std::string out = folder_ + "/" + name;
    const Outcome report = Shell("tools/trimtab report -q --study " + study() + " --out " + out);
    EXPECT_EQ(report.status, 0) << report.output;
    return nlohmann::json::parse(ReadWholeFile(out + "/report.json"));
  }

  bool Exists() const {
    return std::filesystem::exists(study()) && std::filesystem::file_size(study()) > 0;
  }
  size_t visits() const {
    size_t count = 0;
    const std::unique_ptr<Study> now = Study::OpenExisting(study());
    for (const CandidateRecord& each : now->Candidates()) count += each.visits.size();
    return count;
  }
  std::string study() const { return folder_ + "/study.db"; }

  std::string folder_;
  std::string search_;
  pid_t driver_ = 0;
};

TEST_F(LiveStudy, OfTraining) {
  const std::string tiny =
      "--model gpt2-tiny --cluster local --profile generic --max-ranks 1 --gbs 4 --seq 32 "
      "--rounds ";
  Start(tiny + "1000000 --prove 1000", [&] { return visits() >= 2; });
  LookAndKill();
  const size_t before = visits();
  EXPECT_GE(before, 2U);
  search_ = search_.substr(0, search_.find(tiny)) + tiny + "1 --prove 2";
  const Outcome resumed = Shell(search_);
  EXPECT_TRUE(resumed.status == 0 || resumed.status == 5) << resumed.output;
  EXPECT_GE(visits(), before);
}

TEST_F(LiveStudy, OfServing) {
  const std::string tiny =
      "--for serving --model gpt2-tiny --cluster local --max-ranks 1 --workload uniform:8-40/12 "
      "--concurrency 3 --allow sequences=1,4,tokens=64 --requests 12 --rounds ";
  Start(tiny + "1000000 --prove 1000", [&] { return visits() >= 2; });
  LookAndKill();
  const size_t before = visits();
  search_ = search_.substr(0, search_.find(tiny)) + tiny + "1 --prove 2";
  const Outcome resumed = Shell(search_);
  EXPECT_TRUE(resumed.status == 0 || resumed.status == 5) << resumed.output;
  EXPECT_GE(visits(), before);
}

}  // namespace
}  // namespace trimtab
