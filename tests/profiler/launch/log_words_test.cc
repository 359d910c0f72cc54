#include "profiler/launch/log_words.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

constexpr char kFrame[] =
    "--------------------------------------------------------------------------\n";

TEST(LogWords, TheFirstComplaintIsTheCause) {
  EXPECT_EQ(FirstComplaint("srun: cluster configuration lacks support for cpu binding\n"
                           "srun: error: Couldn't find the specified plugin name for mpi/nope\n"
                           "srun: error: Invalid MPI type 'nope'\n"),
            "srun: error: Couldn't find the specified plugin name for mpi/nope");
  EXPECT_EQ(FirstComplaint("srun: unrecognized option '--container-image=x'\n"
                           "Try \"srun --help\" for more information\n"),
            "srun: unrecognized option '--container-image=x'");
  EXPECT_EQ(FirstComplaint("\n\nonly this\n"), "only this");
  EXPECT_EQ(FirstComplaint("srun: job 7 queued and waiting for resources\n"), "");
  EXPECT_EQ(FirstComplaint(""), "");
}

TEST(LogWords, AFramedTextIsItsFirstParagraph) {
  const std::string slots = std::string(kFrame) +
                            "There are not enough slots available in the system to satisfy the 4\n"
                            "slots that were requested by the application:\n\n  /bin/trimtab\n" +
                            kFrame;
  const char* cause =
      "There are not enough slots available in the system to satisfy the 4 slots that were "
      "requested by the application:";
  EXPECT_EQ(FirstComplaint(slots), cause);
  EXPECT_EQ(
      FirstComplaint(std::string(kFrame) + "WARNING: no InfiniBand\n\nbtl\n" + kFrame + slots),
      cause);
}

TEST(LogWords, TheRankThatWasLostFirstIsFound) {
  const auto killed = FindLostRank(
      "srun: error: n0: task 0: Exited with exit code 6\n"
      "srun: error: n1: task 1: Killed\n"
      "srun: error: n2: tasks 2-3: Terminated\n");
  ASSERT_TRUE(killed.has_value());
  EXPECT_EQ(killed->rank, 1);
  EXPECT_EQ(killed->node, "n1");
  EXPECT_EQ(killed->how, "signal 9 (Killed)");
  EXPECT_EQ(FindLostRank("srun: error: gpu-7: task 12: Segmentation fault (core dumped)\n")->how,
            "signal 11 (Segmentation fault)");
  EXPECT_EQ(FindLostRank("srun: error: n0: task 3: Exited with exit code 9\n")->how, "exit code 9");
  EXPECT_FALSE(FindLostRank("srun: error: Unable to create step\n").has_value());
}

TEST(LogWords, NoiseIsTakenOutOfAStreamAndNothingElse) {
  LauncherNoise noise;
  EXPECT_EQ(noise.Filter("{\"step\":1}\nsrun: err"), "{\"step\":1}\n");
  EXPECT_EQ(noise.Filter("or: n1: task 1: Killed\n" + std::string(kFrame) + "MPI_ABORT was\n"), "");
  EXPECT_EQ(noise.Filter("invoked\n" + std::string(kFrame) + "[n0:123] PMIX ERROR\n"), "");
  EXPECT_EQ(noise.Filter("trimtab: rank 1 is lost\nslurmstepd-n0: error: x\nend"),
            "trimtab: rank 1 is lost\n");
  EXPECT_EQ(noise.Flush(), "end");
}

}  // namespace
}  // namespace trimtab
