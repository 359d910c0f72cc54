// The whole command over a real Slurm: one controller and four virtual nodes on this machine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "profiler/results.h"
#include "search/study/sqlite.h"
#include "tests/tools/processes.h"
#include "tests/tools/shell.h"
#include "tests/tools/slurm_rig.h"
#include "tests/tools/study_history.h"

namespace trimtab {
namespace {

constexpr char kModel[] = R"({"name": "tiny", "vocab_size": 257, "hidden_size": 16,
  "num_layers": 2, "num_heads": 2, "num_kv_heads": 2, "ffn_hidden_size": 32,
  "max_sequence_length": 16})";
constexpr char kRun[] = R"({{"model": {}, "global_batch": 4, "sequence_length": 8, "steps": {},
  "layout": {{"dp": 2}},
  "optimizer": {{"learning_rate": 0.01, "min_learning_rate": 0.001, "warmup_steps": 1}}}})";

/// The losses that `trimtab train --json` printed, by step.
std::map<int64_t, double> Losses(const std::string& output) {
  std::map<int64_t, double> losses;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("{\"")) continue;
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (json.contains("loss")) losses[json["step"]] = json["loss"];
  }
  return losses;
}

class SlurmTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    rig_ = new SlurmRig();
    if (rig_->why_not().empty()) std::ofstream(rig_->folder() + "/model.json") << kModel;
  }
  static void TearDownTestSuite() { delete rig_; }
  void SetUp() override {
    if (!rig_->why_not().empty()) GTEST_SKIP() << rig_->why_not();
    work_ = rig_->folder() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(work_);
  }

  static Outcome Trimtab(const std::string& arguments) {
    return Shell("tools/trimtab " + arguments);
  }

  /// A short search over two nodes; `more` are further flags.
  std::string Search(const std::string& more) const {
    return fmt::format(
        "search --model {}/model.json --cluster local --profile generic --gbs 4 --seq 8 "
        "--max-ranks 4 --prove 4 --rounds 2 --indifference 1% --visit-seconds 0.05 "
        "--launcher slurm --launcher-options nodes=2 --study {}/study.db {}",
        rig_->folder(), work_, more);
  }

  std::string SearchForServing(const std::string& more) const {
    return fmt::format(
        "search --for serving --model {}/model.json --cluster local --max-ranks 2 --workload "
        "uniform:2-4/3 --requests 8 --concurrency 2 --fix tp=2 --allow sequences=1,2,4,tokens=64 "
        "--prove 1000 --rounds 4 --launcher slurm --launcher-options nodes=2 --study {}/study.db "
        "{}",
        rig_->folder(), work_, more);
  }

  /// Kills the driver of `search` once two visits are done, and goes on with `resume`.
  void KillAndResume(const std::string& search, const std::string& resume) const {
    const pid_t driver = Start(search);
    const std::string results = work_ + "/study.db.results.jsonl";
    ASSERT_TRUE(WaitFor(std::chrono::seconds(60), [&] { return ReadResults(results).size() >= 2; }))
        << ReadWholeFile(work_ + "/out");
    kill(driver, SIGKILL);
    WaitForEnd(driver);
    const std::vector<TrialResult> before = ReadResults(results);
    const std::string left = SlurmRig::Queue();
    EXPECT_NE(left.find("trimtab-"), std::string::npos) << "its nodes should still be held";

    const Outcome resumed = Trimtab(resume);
    EXPECT_TRUE(resumed.status == 0 || resumed.status == 5) << resumed.output;
    EXPECT_TRUE(SlurmRig::Emptied());
    ExpectWholeStudy(work_ + "/study.db");
    std::set<std::string> kept;
    for (const TrialResult& result : ReadResults(results)) kept.insert(result.attempt);
    for (const TrialResult& result : before) EXPECT_TRUE(kept.contains(result.attempt));
    EXPECT_GT(kept.size(), before.size());
  }

  std::string WriteRun(int steps) const {
    std::ofstream(work_ + "/run.json") << fmt::format(kRun, kModel, steps);
    return work_ + "/run.json";
  }

  pid_t Start(const std::string& arguments) const {
    return StartCommand("tools/trimtab " + arguments, work_ + "/out");
  }

  static SlurmRig* rig_;
  std::string work_;
};

SlurmRig* SlurmTest::rig_ = nullptr;

TEST_F(SlurmTest, SearchesAndTrainsWithTheWinner) {
  const Outcome search = Trimtab(Search("--quiet --report " + work_ + "/report"));
  ASSERT_TRUE(search.status == 0 || search.status == 5) << search.output;
  EXPECT_TRUE(SlurmRig::Emptied()) << "nodes are given back";
  ExpectWholeStudy(work_ + "/study.db");
  Database study(work_ + "/study.db", Access::kRead);
  EXPECT_GE(study.QueryInt("SELECT count(*) FROM measurements"), 4) << search.output;
  EXPECT_EQ(study.QueryInt("SELECT count(*) FROM attempts WHERE state <> 'done'"), 0);

  const std::string train =
      "train --quiet --json --steps 4 --config " + work_ + "/report/report.json";
  const Outcome alone = Trimtab(train);
  const Outcome job = Trimtab(train + " --launcher slurm --launcher-options nodes=2 --checkpoint " +
                              work_ + "/checkpoint");
  ASSERT_EQ(job.status, 0) << job.output;
  EXPECT_EQ(Losses(job.output).size(), 4u) << job.output;
  EXPECT_EQ(Losses(job.output), Losses(alone.output));
}

TEST_F(SlurmTest, AKilledDriverIsResumedAndItsNodesAreTakenOver) {
  KillAndResume(Search("--json"), Search("--resume"));
}

TEST_F(SlurmTest, AKilledSearchForServingIsResumedToo) {
  KillAndResume(SearchForServing("--json"), SearchForServing("--resume"));
}

TEST_F(SlurmTest, TrainingThatIsToldToGoSavesAndIsRequeued) {
  // Long after the signal, however fast the machine is: steps take a millisecond.
  const std::string run = WriteRun(4000);
  const std::string train = "train --json --log-every 100 --config " + run;
  const pid_t job = Start(train + " --launcher slurm --launcher-options nodes=2 --checkpoint " +
                          work_ + "/checkpoint");
  const auto said = [&](const char* words) {
    return ReadWholeFile(work_ + "/out").find(words) != std::string::npos;
  };
  ASSERT_TRUE(WaitFor(std::chrono::seconds(60), [&] { return said("\"step\":100,"); }))
      << ReadWholeFile(work_ + "/out");
  const std::string id = Shell("squeue --noheader --format=%i").output;
  Shell("scancel --signal=USR2 " + id);
  EXPECT_EQ(WaitForEnd(job), 0) << ReadWholeFile(work_ + "/out");
  const std::string output = ReadWholeFile(work_ + "/out");
  EXPECT_TRUE(said("the scheduler wants the nodes")) << output;
  EXPECT_TRUE(said("going on from")) << output;
  const std::map<int64_t, double> losses = Losses(output);
  const std::map<int64_t, double> undisturbed = Losses(Trimtab(train).output);
  ASSERT_EQ(losses.rbegin()->first, 4000);
  // The step before the save was its last: what follows is that of a run that nobody stopped.
  EXPECT_EQ(losses.at(4000), undisturbed.at(4000));
  EXPECT_GE(losses.size(), undisturbed.size());
}

}  // namespace
}  // namespace trimtab
