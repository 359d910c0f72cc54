// What Slurm's commands print, taken for what it says and no more; commands that are slow, loud,
// or not there.

#include "profiler/launch/slurm_client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "engine/base/error.h"
#include "profiler/launch/command_output.h"
#include "profiler/launch/launcher.h"
#include "profiler/launch/slurm_allocation.h"
#include "tests/profiler/launch/fake_slurm.h"

namespace trimtab {
namespace {

TEST(SlurmWords, MeanWhatTheyMean) {
  EXPECT_EQ(PhaseOf("PENDING"), JobPhase::kWaiting);
  EXPECT_EQ(PhaseOf("RUNNING"), JobPhase::kRunning);
  EXPECT_EQ(PhaseOf("CANCELLED by 1000"), JobPhase::kCancelled);
  EXPECT_EQ(PhaseOf("NODE_FAIL"), JobPhase::kNodeLost);
  EXPECT_EQ(PhaseOf("PREEMPTED"), JobPhase::kPreempted);
  EXPECT_EQ(PhaseOf("TIMEOUT"), JobPhase::kTimeLimit);
  EXPECT_EQ(PhaseOf("OUT_OF_MEMORY"), JobPhase::kOutOfMemory);
  EXPECT_EQ(PhaseOf("SPECIAL_EXIT"), JobPhase::kHeld);
  for (const char* word : {"", "EN ATTENTE", "LAUNCH_FAILED_2030", "running"}) {
    EXPECT_EQ(PhaseOf(word), JobPhase::kUnknown) << word;
  }
}

TEST(SlurmWords, QueueLinesOfAnotherFormAreSkipped) {
  const auto jobs = ParseQueue(
      "12|PENDING|2|(Resources|x)\n"
      "slurm_load_jobs error: Unable\n"
      "13|RUNNING\n|RUNNING|1|\n14|RUNNING|x|\n-1|RUNNING|1|\n15|RUNNING|1|None");
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].id, "12");
  EXPECT_EQ(jobs[0].nodes, 2);
  EXPECT_EQ(jobs[0].reason, "(Resources|x)");
  EXPECT_EQ(jobs[1].id, "15");
}

TEST(SlurmWords, AJobTellsItsEnd) {
  const auto job = ParseJob(
      "JobId=7 JobName=JobState=FAILED UserId=root(0) JobState=COMPLETED Reason=None Restarts=2 "
      "ExitCode=0:9 RunTime=1\n");
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->id, "7");
  EXPECT_EQ(job->state, "COMPLETED");
  EXPECT_EQ(job->exit_code, 128 + 9);
  EXPECT_EQ(job->restarts, 2);
  EXPECT_FALSE(ParseJob("").has_value());
  EXPECT_FALSE(ParseJob("JobId=x JobState=RUNNING").has_value());
  EXPECT_FALSE(ParseJob("no such job").has_value());
}

TEST(SlurmWords, SomeReasonsNeverEnd) {
  for (const char* reason :
       {"PartitionNodeLimit", "PartitionTimeLimit", "PartitionConfig", "BadConstraints",
        "InvalidAccount", "InvalidQOS", "QOSMaxWallDurationPerJobLimit", "AssocMaxNodePerJobLimit",
        "AssocMaxCpuMinutesPerJobLimit", "QOSMinGRES", "DependencyNeverSatisfied"}) {
    EXPECT_TRUE(NeverEnds(reason)) << reason;
    EXPECT_EQ((SlurmJob{.id = "1", .state = "PENDING", .reason = reason}.phase()),
              JobPhase::kNeverStarts);
  }
  for (const char* reason :
       {"", "None", "Resources", "Priority", "AssocMaxJobsLimit", "AssocGrpCpuLimit",
        "QOSMaxJobsPerUserLimit", "ReqNodeNotAvail,_UnavailableNodes:n[1-2]", "JobHeldUser",
        "PartitionDown", "BeginTime", "Licenses"}) {
    EXPECT_FALSE(NeverEnds(reason)) << reason;
  }
}

// It runs on for the partition's grace time, and takes no step.
TEST(SlurmWords, AJobThatIsPreemptedIsEnding) {
  const std::string running = "JobId=7 JobState=RUNNING Restarts=1 StartTime=2024-05-01T12:00:00 ";
  EXPECT_EQ(ParseJob(running + "PreemptTime=2024-05-01T12:30:00")->phase(), JobPhase::kEnding);
  EXPECT_EQ(ParseJob(running + "PreemptTime=2024-05-01T11:30:00")->phase(), JobPhase::kRunning);
  EXPECT_EQ(ParseJob(running + "PreemptTime=None")->phase(), JobPhase::kRunning);
}

TEST(CommandOutput, HasBothStreamsAndTheExitCode) {
  const CommandOutput output =
      ReadCommand({"sh", "-c", "echo out; echo error >&2; echo $LC_ALL; exit 3"}, 10);
  EXPECT_EQ(output.exit_code, 3);
  EXPECT_EQ(output.out, "out\nC\n");
  EXPECT_EQ(output.error, "error\n");
  EXPECT_EQ(ReadCommand({"sh", "-c", "kill -9 $$"}, 10).exit_code, 137);
  EXPECT_THROW(ReadCommand({"/nonexistent/squeue"}, 10), EnvironmentError);
}

TEST(CommandOutput, IsLimitedInTimeAndSize) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(ReadCommand({"sleep", "30"}, 0.2).exit_code, -1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  const CommandOutput loud = ReadCommand({"head", "-c", "3000000", "/dev/zero"}, 30);
  EXPECT_EQ(loud.exit_code, 0);
  EXPECT_EQ(loud.out.size(), size_t{1} << 20);
}

TEST_F(FakeSlurm, ARefusedJobIsSlurmsOwnWords) {
  Command("sbatch", "echo 'sbatch: error: invalid account' >&2; exit 1");
  try {
    SubmitJob({"sbatch"}, "name", 1, 60);
    FAIL() << "accepted";
  } catch (const EnvironmentError& error) {
    EXPECT_STREQ(error.what(), "Slurm refused the job: sbatch: error: invalid account");
  }
}

TEST_F(FakeSlurm, NonsenseIsNoJob) {
  for (const char* words : {"", "Submitted batch job 7", "7; rm -rf", "-7", "seven"}) {
    Command("sbatch", std::string("echo '") + words + "'");
    if (std::string(words) == "7; rm -rf") {
      EXPECT_EQ(SubmitJob({"sbatch"}, "name", 1, 1), "7") << "ID;CLUSTER is --parsable's form";
    } else {
      EXPECT_THROW(SubmitJob({"sbatch"}, "name", 1, 1), EnvironmentError) << words;
    }
  }
}

// The controller took the job, and its answer was lost.
TEST_F(FakeSlurm, AJobThatArrivedUnnoticedIsNotSentTwice) {
  Command("sbatch", "echo x >> $FAKE/sent; echo 'error: Socket timed out' >&2; exit 1");
  Command("squeue", "[ ! -e $FAKE/sent ] || echo '8|PENDING|4|Resources'; echo '9|PENDING|2|x'");
  EXPECT_EQ(SubmitJob({"sbatch"}, "name", 4, 60), "8");
  EXPECT_EQ(Count("sent"), 1);
}

TEST_F(FakeSlurm, ASilentControllerIsAskedAgain) {
  Command("sbatch",
          "echo x >> $FAKE/sent\n"
          "[ $(wc -l < $FAKE/sent) -lt 3 ] || { echo 5; exit; }\n"
          "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1");
  EXPECT_EQ(SubmitJob({"sbatch"}, "name", 1, 60), "5");
  EXPECT_EQ(Count("sent"), 3);
}

TEST_F(FakeSlurm, ASilentControllerIsNotWaitedForOnceToldToStop) {
  Command("sbatch", "echo x >> $FAKE/sent; echo 'Unable to contact slurm controller' >&2; exit 1");
  EXPECT_EQ(SubmitJob({"sbatch"}, "name", 1, 3600, [this] { return Count("sent") > 1; }), "");
  EXPECT_EQ(Count("sent"), 2);
}

// A driver was killed between sbatch's answer and whatever it would have noted.
TEST_F(FakeSlurm, AKilledDriversJobIsTakenOver) {
  Command("sbatch", "echo x >> $FAKE/sent; echo 6");
  Command("squeue", "echo '3|COMPLETING|4|x'; echo '4|RUNNING|4|x'");
  {
    EXPECT_EQ(
        SlurmAllocation(SlurmAllocation::Request{.name = "name", .nodes = 4, .command = {"sbatch"}})
            .id(),
        "4");
  }
  EXPECT_EQ(Count("sent"), 0);
  EXPECT_EQ(Count("cancelled"), 2) << "what is ending, and whoever holds nodes gives them back";
}

TEST_F(FakeSlurm, ASilentControllerIsNoVerdict) {
  Command("sbatch", "echo 6");
  Command("scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1");
  SlurmAllocation allocation(SlurmAllocation::Request{.name = "name", .command = {"sbatch"}});
  EXPECT_FALSE(allocation.Ready());
  EXPECT_FALSE(allocation.over());
  EXPECT_EQ(allocation.Refresh(), JobPhase::kUnknown);
  Command("scontrol", "echo 'JobId=6 JobState=RUNNING Reason=None'");
  EXPECT_EQ(allocation.Refresh(), JobPhase::kRunning);
  EXPECT_TRUE(allocation.Ready());
}

TEST_F(FakeSlurm, AJobThatVanishedIsOver) {
  Command("sbatch", "echo 6");
  Command("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
  SlurmAllocation allocation(SlurmAllocation::Request{.name = "name", .command = {"sbatch"}});
  EXPECT_EQ(allocation.Refresh(), JobPhase::kNodeLost);
  EXPECT_TRUE(allocation.over());
}

TEST_F(FakeSlurm, AJobThatNeverStartsIsGivenUpWithItsReason) {
  Command("sbatch", "echo 6");
  Command("scontrol", "echo 'JobId=6 JobState=PENDING Reason=QOSMaxJobsPerUserLimit'");
  SlurmAllocation allocation(
      SlurmAllocation::Request{.name = "name", .command = {"sbatch"}, .pending_limit_s = 0.01});
  try {
    while (!allocation.Ready()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    FAIL() << "it started";
  } catch (const EnvironmentError& error) {
    EXPECT_STREQ(error.what(),
                 "job 6 is PENDING (QOSMaxJobsPerUserLimit): no nodes within pending-limit=0.01");
  }
}

TEST_F(FakeSlurm, AJobThatCanNeverStartIsCancelledWithSlurmsReason) {
  Command("sbatch", "echo 6");
  Command("scontrol", "echo 'JobId=6 JobState=PENDING Reason=PartitionTimeLimit'");
  SlurmAllocation allocation(SlurmAllocation::Request{.name = "name", .command = {"sbatch"}});
  EXPECT_FALSE(allocation.Ready()) << "a controller that has just started may say so";
  EXPECT_EQ(allocation.reason(), "job 6 is PENDING (PartitionTimeLimit)");
  try {
    while (!allocation.Ready()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    FAIL() << "it started";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(
        std::string(error.what()).find("job 6 can never start: Slurm says PartitionTimeLimit"),
        std::string::npos)
        << error.what();
  }
  EXPECT_EQ(Count("cancelled"), 1);
}

TEST_F(FakeSlurm, AJobThatRunsAgainLostWhatRanThere) {
  Command("sbatch", "echo 6");
  Command("scontrol", "echo 'JobId=6 JobState=RUNNING Restarts=0'");
  SlurmAllocation allocation(SlurmAllocation::Request{.name = "name", .command = {"sbatch"}});
  EXPECT_EQ(allocation.Refresh(), JobPhase::kRunning);
  Command("scontrol", "echo 'JobId=6 JobState=RUNNING Restarts=1'");
  EXPECT_EQ(allocation.Refresh(), JobPhase::kPreempted);
  EXPECT_EQ(allocation.Refresh(), JobPhase::kRunning);
}

// Slow nodes are better than none.
TEST_F(FakeSlurm, NodesLeftOutAreAskedForWhereOthersDoNotSuffice) {
  Command("sbatch", "echo \"$1\" >> $FAKE/sent; echo $((5 + $(wc -l < $FAKE/sent)))");
  Command("scontrol", "echo \"JobId=6 JobState=PENDING Reason=Resources\"");
  SlurmAllocation allocation(SlurmAllocation::Request{.name = "name",
                                                      .command = {"sbatch", "--exclude=n3"},
                                                      .with_all_nodes = {"sbatch", "--all"}});
  EXPECT_EQ(allocation.Refresh(), JobPhase::kWaiting);
  EXPECT_EQ(allocation.id(), "6") << "others take their turn";
  Command("scontrol",
          "echo \"JobId=$4 JobState=PENDING Reason=ReqNodeNotAvail,_UnavailableNodes:n[1-2]\"");
  allocation.Refresh();
  EXPECT_EQ(allocation.id(), "7");
  allocation.Refresh();
  EXPECT_EQ(allocation.id(), "7") << "all are asked for";
  EXPECT_EQ(Count("cancelled"), 1);
}

TEST_F(FakeSlurm, NodesLeftOutAreAskedForWhereSlurmTakesNoJobWithoutThem) {
  Command("sbatch",
          "if [ $1 = --all ]; then echo 7; else echo 'sbatch: error: Batch job submission failed: "
          "Requested node configuration is not available' >&2; exit 1; fi");
  const SlurmAllocation::Request without = {.name = "name", .command = {"sbatch", "--exclude=n3"}};
  SlurmAllocation::Request with = without;
  with.with_all_nodes = {"sbatch", "--all"};
  EXPECT_EQ(SlurmAllocation(with).id(), "7");
  EXPECT_THROW(SlurmAllocation{without}, EnvironmentError) << "no others are known";
}

// Of a controller that was killed and took its job's nodes for free ones.
TEST_F(FakeSlurm, AJobThatCannotBeStartedIsReplaced) {
  Command("sbatch", "echo 6");
  Command("scontrol", "echo 'JobId=6 JobState=PENDING Reason=launch_failed_requeued_held'");
  SlurmAllocation allocation(SlurmAllocation::Request{.name = "name", .command = {"sbatch"}});
  EXPECT_FALSE(allocation.Ready());
  EXPECT_TRUE(allocation.over());
  EXPECT_EQ(Count("cancelled"), 1);
  Command("scontrol", "echo 'JobId=6 JobState=CANCELLED Reason=None'");
  EXPECT_EQ(allocation.Refresh(), JobPhase::kNodeLost) << "nobody else cancelled it";

  Command("squeue", "echo '7|PENDING|1|launch failed requeued held'");
  Command("sbatch", "echo 8");
  SlurmAllocation another(SlurmAllocation::Request{.name = "name", .command = {"sbatch"}});
  EXPECT_EQ(another.id(), "8") << "what never begins is not taken over";
}

TEST_F(FakeSlurm, AJobThatTheUserCancelledIsNotAskedForAgain) {
  Command("sbatch", "echo 6");
  Command("scontrol", "echo 'JobId=6 JobState=CANCELLED Reason=None'");
  SlurmAllocation allocation(SlurmAllocation::Request{.name = "name", .command = {"sbatch"}});
  EXPECT_THROW(allocation.Ready(), EnvironmentError);
}

/// Steps of a launcher that end as a script says.
class FakeSteps : public FakeSlurm {
 protected:
  void SetUp() override {
    FakeSlurm::SetUp();
    unsetenv("SLURM_JOB_ID");
    Command("sbatch", "echo \"$@\" >> $FAKE/sent; echo 6");
    Command("scontrol", "echo 'JobId=6 JobState=RUNNING Reason=None'");
  }

  /// One run whose srun is `script`.
  LaunchEnd RunOnce(Launcher& launcher, const std::string& script) const {
    Command("srun", script);
    const auto run = launcher.Submit(
        {.name = "run", .study = "study", .program = "/bin/true", .log_path = folder_ + "/log"});
    while (run->Poll() != LaunchedRun::State::kEnded) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    run->Wait();
    std::ifstream log(folder_ + "/log");
    const std::string said(std::istreambuf_iterator<char>(log), {});
    std::filesystem::remove(folder_ + "/log");
    return run->Classify(said);
  }
  std::string Sent() const {
    std::ifstream file(folder_ + "/sent");
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(FakeSteps, SayHowTheyEnded) {
  const auto launcher = MakeLauncher("slurm", {});
  const std::string step = "echo 'slurmstepd: error: *** STEP 6.0 ON n0 CANCELLED AT 12:00 DUE TO ";
  EXPECT_EQ(RunOnce(*launcher, "exit 3"), LaunchEnd::kExited);
  EXPECT_EQ(RunOnce(*launcher, step + "TIME LIMIT ***'; exit 1"), LaunchEnd::kTimeLimit);
  EXPECT_EQ(RunOnce(*launcher, step + "PREEMPTION ***'; exit 1"), LaunchEnd::kPreempted);
  EXPECT_EQ(RunOnce(*launcher, "echo 'Detected 1 oom-kill event(s) in StepId=6.0'; exit 137"),
            LaunchEnd::kOutOfMemory);
  EXPECT_EQ(Count("sent"), 1) << "one job holds the nodes of all";
}

TEST_F(FakeSteps, AJobThatTakesNoStepJustNowIsNotGivenUp) {
  const auto launcher = MakeLauncher("slurm", {});
  for (const char* words :
       {"Unable to create step for job 6: Job/step already completing or completed",
        "Unable to create step for job 6: Required node not available (down, drained or reserved)",
        "Unable to contact slurm controller (connect failure)", "Slurm job 6 has expired"}) {
    EXPECT_EQ(RunOnce(*launcher, fmt::format("echo 'srun: error: {}' >&2; exit 1", words)),
              LaunchEnd::kNotTaken)
        << words;
  }
  EXPECT_EQ(RunOnce(*launcher, "echo \"srun: unrecognized option '--x'\" >&2; exit 1"),
            LaunchEnd::kExited);
}

TEST_F(FakeSteps, TakeTheJobsWordWhereTheySayNothing) {
  for (const auto& [state, end] : {std::pair{"PENDING", LaunchEnd::kPreempted},
                                   {"PREEMPTED", LaunchEnd::kPreempted},
                                   {"NODE_FAIL", LaunchEnd::kNodeLost},
                                   {"TIMEOUT", LaunchEnd::kTimeLimit},
                                   {"OUT_OF_MEMORY", LaunchEnd::kOutOfMemory}}) {
    SetUp();
    const auto launcher = MakeLauncher("slurm", {});
    EXPECT_EQ(RunOnce(*launcher, fmt::format("rm -f $FAKE/scontrol; "
                                             "printf '#!/bin/sh\\necho JobId=6 JobState={}' > "
                                             "$FAKE/scontrol; chmod 700 $FAKE/scontrol; exit 1",
                                             state)),
              end)
        << state;
  }
}

TEST_F(FakeSteps, ANodeThatFailsTwiceIsLeftOut) {
  const auto launcher = MakeLauncher("slurm", {"exclude=n9"});
  const std::string failure = "echo 'srun: error: Node failure on n2' >&2; exit 1";
  EXPECT_EQ(RunOnce(*launcher, failure), LaunchEnd::kNodeLost);
  RunOnce(*launcher, "exit 0");
  EXPECT_EQ(Count("sent"), 1) << "once is forgiven";
  RunOnce(*launcher, failure);
  RunOnce(*launcher, "exit 0");
  EXPECT_EQ(Count("sent"), 2);
  EXPECT_NE(Sent().find("--exclude=n9,n2"), std::string::npos) << Sent();
  EXPECT_EQ(Count("cancelled"), 1) << "the job with the bad node is given up";
}

// Ranks that run, and do not hear what they are told, would be waited for until a time limit.
TEST_F(FakeSteps, AStepThatHearsNothingIsEndedWithItsJob) {
  const auto launcher = MakeLauncher("slurm", {});
  EXPECT_EQ(
      RunOnce(*launcher, "echo 'srun: error: failed reading io init message' >&2; exec sleep 1000"),
      LaunchEnd::kNodeLost);
  EXPECT_EQ(Count("cancelled"), 1);
  EXPECT_EQ(RunOnce(*launcher, "exit 0"), LaunchEnd::kExited);
  EXPECT_EQ(Count("sent"), 2) << "another job takes its place";
}

TEST_F(FakeSteps, ANodeThatIsSlowTwiceIsLeftOut) {
  const auto launcher = MakeLauncher("slurm", {});
  RunOnce(*launcher, "exit 0");
  EXPECT_FALSE(launcher->NoteSlow("n2")) << "once is forgiven";
  EXPECT_FALSE(launcher->NoteSlow("n3"));
  EXPECT_TRUE(launcher->NoteSlow("n2"));
  EXPECT_FALSE(launcher->NoteSlow("n2")) << "it is left out already";
  RunOnce(*launcher, "exit 0");
  EXPECT_NE(Sent().find("--exclude=n2"), std::string::npos) << Sent();
  EXPECT_EQ(Count("cancelled"), 1) << "the job with the bad node is given up";
}

// Of a driver that was killed: its steps are ended, its nodes are kept.
TEST_F(FakeSteps, LeftoversAreEnded) {
  Command("squeue",
          "case \"$*\" in\n"
          "*--steps*) [ -e $FAKE/cancelled ] || echo '6.0|study-3' ;;\n"
          "*--name=trimtab-study*) echo '6|RUNNING|1|None' ;;\nesac");
  MakeLauncher("slurm", {})->EndLeftovers("study");
  std::ifstream cancelled(folder_ + "/cancelled");
  std::string line;
  std::getline(cancelled, line);
  EXPECT_EQ(line, "--signal=KILL 6.0");
}

// What the scheduler does not know any more ends with the job.
TEST_F(FakeSteps, NodesAreGivenUp) {
  Command("squeue", "case \"$*\" in *--name=trimtab-study*) echo '6|RUNNING|1|None' ;;\nesac");
  MakeLauncher("slurm", {})->GiveUpNodes("study");
  std::ifstream cancelled(folder_ + "/cancelled");
  std::string line;
  std::getline(cancelled, line);
  EXPECT_EQ(line, "6");
}

}  // namespace
}  // namespace trimtab
