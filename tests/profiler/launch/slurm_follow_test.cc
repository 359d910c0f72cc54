// Training jobs that are followed to their end, and the script that they run.

#include "profiler/launch/slurm_follow.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/error.h"
#include "profiler/launch/command_output.h"
#include "profiler/launch/slurm_plan.h"
#include "tests/profiler/launch/fake_slurm.h"

namespace trimtab {
namespace {

/// Follows job 6, which is in `state`, after `stops` requests to stop.
int Follow(int stops) {
  return FollowJob("6", {.output_path = "/nonexistent",
                         .on_output = [](const std::string&) {},
                         .on_state = [](const std::string&) {},
                         .stops = [stops] { return stops; }});
}

TEST_F(FakeSlurm, AFollowedJobThatCanNeverStartIsCancelled) {
  Command("scontrol", "echo 'JobId=6 JobState=PENDING Reason=PartitionNodeLimit'");
  EXPECT_THROW(Follow(0), EnvironmentError);
  EXPECT_EQ(Count("cancelled"), 1);
}

TEST_F(FakeSlurm, ACancelledJobEndsAsWhoeverCancelledItExpects) {
  Command("scontrol", "echo 'JobId=6 JobState=CANCELLED Reason=None'");
  EXPECT_EQ(Follow(1), 130);
  EXPECT_EQ(Count("cancelled"), 1) << "nothing ran yet";
  EXPECT_THROW(Follow(0), EnvironmentError);
}

/// The exit code of a training job's script whose step exits with 85, where the job is as said.
class FakeBatch : public FakeSlurm {
 protected:
  bool Requeues(const std::string& job, const std::string& restarts = "") const {
    std::filesystem::remove(folder_ + "/requeued");
    Command("srun", "exit 85");
    Command("scontrol",
            "[ $1 = requeue ] && { echo x >> $FAKE/requeued; exit; }\necho 'JobId=6 " + job + "'");
    Command("script", BatchScript());
    const CommandOutput output =
        ReadCommand({"env", "SLURM_JOB_ID=6", "SLURM_RESTART_COUNT=" + restarts, "script"}, 60);
    EXPECT_EQ(output.exit_code, 85) << output.error;
    return Count("requeued") == 1;
  }
};

TEST_F(FakeBatch, ACancelIsACancelAndOtherEndsAreRequeued) {
  const std::string start = " StartTime=2024-05-01T12:00:00 ";
  EXPECT_FALSE(Requeues("JobState=COMPLETING Reason=None Restarts=0 PreemptTime=None" + start));
  EXPECT_FALSE(Requeues("JobState=CANCELLED Reason=None Restarts=2 PreemptTime=None" + start, "2"));
  EXPECT_FALSE(
      Requeues("JobState=COMPLETING Reason=None Restarts=1 "
               "PreemptTime=2024-05-01T11:00:00" +
                   start,
               "1"))
      << "preempted before";
  EXPECT_TRUE(Requeues("JobState=RUNNING Reason=None Restarts=0 PreemptTime=None" + start));
  EXPECT_TRUE(
      Requeues("JobState=RUNNING Reason=None Restarts=0 "
               "PreemptTime=2024-05-01T12:30:00" +
               start));
  EXPECT_TRUE(
      Requeues("JobState=COMPLETING Reason=None Restarts=0 "
               "PreemptTime=2024-05-01T12:30:00" +
               start));
  EXPECT_TRUE(Requeues("JobState=COMPLETING Reason=TimeLimit Restarts=0 PreemptTime=None" + start));
  EXPECT_TRUE(Requeues("JobState=COMPLETING Reason=None Restarts=1 PreemptTime=None" + start))
      << "of a node that failed";
}

}  // namespace
}  // namespace trimtab
