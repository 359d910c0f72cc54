// A search whose driver, workers and scheduler are killed at random moments, over and over: no
// visit is lost, none is counted twice, and in the end it finishes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <thread>

#include "profiler/results.h"
#include "tests/tools/processes.h"
#include "tests/tools/shell.h"
#include "tests/tools/slurm_rig.h"
#include "tests/tools/study_history.h"

namespace trimtab {
namespace {

constexpr char kModel[] = R"({"name": "tiny", "vocab_size": 257, "hidden_size": 16,
  "num_layers": 2, "num_heads": 2, "num_kv_heads": 2, "ffn_hidden_size": 32,
  "max_sequence_length": 16})";

/// What is killed beside the driver.
enum class Victim { kDriver, kWorker, kController };

class History {
 public:
  History(std::string folder, std::string flags)
      : folder_(std::move(folder)), flags_(std::move(flags)) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/model.json") << kModel;
  }

  std::string study() const { return fmt::format("{}/study{}.db", folder_, searches_); }

  /// Searches on until it is killed after a random time; false: it came to its end before.
  bool Disturb(const std::function<void(double)>& restart_controller) {
    const pid_t driver = StartCommand(Command("--rounds 1000000 --prove 1000"), Output());
    // So many visits further, however fast the machine is: 0 = while it takes up what there was.
    const size_t before = Lines();
    const size_t further = random_() % 3;
    std::optional<int> ended;  // since one candidate is ahead of all others
    EXPECT_TRUE(WaitFor(std::chrono::seconds(120), [&] {
      ended = IfEnded(driver);
      return ended || Lines() >= before + further;
    }));
    if (ended) {
      EXPECT_EQ(*ended, 0) << ReadWholeFile(Output());
      Begin();
      return false;
    }
    Sleep(0, 0.5);
    switch (static_cast<Victim>(random_() % (restart_controller ? 3 : 2))) {
      case Victim::kDriver:
        break;
      case Victim::kWorker:
        for (const pid_t worker : ProcessesWith("--result" + std::string(1, '\0') + study())) {
          kill(worker, SIGKILL);
        }
        Sleep(0.1, 1);
        break;
      case Victim::kController:
        restart_controller(0.5);
        Sleep(0.1, 1);
        break;
    }
    kill(driver, SIGKILL);
    // It may have been done just before.
    const int end = WaitForEnd(driver);
    EXPECT_TRUE(end == 128 + SIGKILL || end == 0) << end << ": " << ReadWholeFile(Output());
    const StudyHistory now = ReadHistory(study());
    ExpectGrown(history_, now);
    history_ = now;
    if (end == 0) Begin();
    return end != 0;
  }

  /// Searches on to the end.
  void Finish() {
    const Outcome end = Shell(Command("--rounds 1 --prove 3"));
    EXPECT_TRUE(end.status == 0 || end.status == 5) << end.output;
    ExpectGrown(history_, ReadHistory(study()));
    ExpectWholeStudy(study());
    fmt::print("{} visits of {} searches in the end\n", visits_ + ReadHistory(study()).size(),
               searches_ + 1);
  }

 private:
  /// Another search: this one is done.
  void Begin() {
    const StudyHistory end = ReadHistory(study());
    ExpectGrown(history_, end);
    ExpectWholeStudy(study());
    visits_ += end.size();
    ++searches_;
    history_ = {};
  }
  size_t Lines() const { return ReadResults(study() + ".results.jsonl").size(); }
  std::string Output() const { return folder_ + "/out"; }
  std::string Command(const std::string& more) const {
    return fmt::format(
        "tools/trimtab search --model {}/model.json --cluster local --profile generic --gbs 4 "
        "--seq 8 --max-ranks 4 --dry-runs 4 --visit-seconds 0.02 --resume --study {} "
        "{} {}",
        folder_, study(), flags_, more);
  }
  void Sleep(double least_s, double most_s) {
    std::this_thread::sleep_for(std::chrono::duration<double>(
        std::uniform_real_distribution<double>(least_s, most_s)(random_)));
  }

  const std::string folder_;
  const std::string flags_;
  std::mt19937_64 random_{20240501};
  StudyHistory history_;
  int searches_ = 0;   // that came to their end
  size_t visits_ = 0;  // of these
};

int Kills() { return std::atoi(std::getenv("TRIMTAB_KILLS")); }

TEST(History, OfASearchOnThisMachine) {
  History history(testing::TempDir() + "/history", "");
  for (int kills = 0; kills < Kills() - Kills() / 3 && !testing::Test::HasFailure();) {
    SCOPED_TRACE(kills);
    kills += history.Disturb(nullptr) ? 1 : 0;
  }
  history.Finish();
}

TEST(History, OfASearchOverSlurm) {
  const SlurmRig rig;
  if (!rig.why_not().empty()) GTEST_SKIP() << rig.why_not();
  History history(rig.folder() + "/history", "--launcher slurm --launcher-options nodes=2");
  for (int kills = 0; kills < Kills() / 3 && !testing::Test::HasFailure();) {
    SCOPED_TRACE(kills);
    kills += history.Disturb([&rig](double pause_s) { rig.RestartController(pause_s); }) ? 1 : 0;
  }
  history.Finish();
  EXPECT_TRUE(SlurmRig::Emptied()) << "nodes are given back";
}

}  // namespace
}  // namespace trimtab
