#include "tools/doctor/doctor_checks.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

/// As on a GPU node where all is well.
LibraryVersions AllWell() {
  return {.cuda_driver = {"13.0", 13000, "/lib/libcuda.so.1", ""},
          .cuda_runtime = {"13.0", 13000, "/cuda/libcudart.so.13", ""},
          .cudnn = {"9.13.1", 91301, "/cuda/libcudnn.so.9", ""},
          .nccl = {"2.27.3", 22703, "/cuda/libnccl.so.2", ""},
          .mpi = {"Open MPI v4.1.4", 0, "/lib/libmpi.so.40", ""}};
}

/// The row of a library.
Check RowOf(const std::string& what, const LibraryVersions& found) {
  for (const Check& check : CheckLibraries(found)) {
    if (check.what == what) return check;
  }
  ADD_FAILURE() << "no row " << what;
  return {};
}

TEST(DoctorChecks, ALibraryThatWorksShowsItsVersionAndFile) {
  for (const Check& check : CheckLibraries(AllWell())) {
    EXPECT_EQ(check.health, Health::kOk) << check.what;
    EXPECT_NE(check.version, "") << check.what;
  }
  EXPECT_EQ(RowOf("NCCL", AllWell()).finding, "2.27.3 (/cuda/libnccl.so.2)");
  EXPECT_EQ(RowOf("MPI", AllWell()).finding, "Open MPI v4.1.4 (/lib/libmpi.so.40)");
  EXPECT_TRUE(
      RowOf("CUDA driver", AllWell()).finding.ends_with("for CUDA up to 13.0 (/lib/libcuda.so.1)"));
}

TEST(DoctorChecks, AMissingLibraryIsANoteThatSaysWhatItMeans) {
  const std::vector<Check> checks = CheckLibraries({});
  ASSERT_EQ(checks.size(), 5u);
  for (const Check& check : checks) {
    EXPECT_EQ(check.health, Health::kNote) << check.what;
    EXPECT_TRUE(check.finding.starts_with("not found: ")) << check.finding;
    EXPECT_EQ(check.version, "");
  }
}

TEST(DoctorChecks, ABrokenLibraryIsANoteWithTheReason) {
  LibraryVersions found = AllWell();
  found.cudnn = {.problem = "it crashed (Segmentation fault)"};
  const Check check = RowOf("cuDNN", found);
  EXPECT_EQ(check.health, Health::kNote);
  EXPECT_EQ(
      check.finding,
      "broken: it crashed (Segmentation fault); attention on GPUs uses Trimtab's own kernels");
}

TEST(DoctorChecks, VersionsThatDoNotFitAreNotes) {
  LibraryVersions found = AllWell();
  found.cuda_driver = {"12.8", 12080, "/lib/libcuda.so.1", ""};
  found.cudnn = {"9.8.0", 90800, "/cuda/libcudnn.so.9", ""};
  found.nccl = {"2.25.1", 22501, "/cuda/libnccl.so.2", ""};
  found.mpi = {"MPICH Version: 4.0.2", 0, "/lib/libmpi.so", ""};
  EXPECT_NE(RowOf("CUDA driver", found).finding.find("too old for CUDA runtime 13.0"),
            std::string::npos);
  EXPECT_NE(RowOf("cuDNN", found).finding.find("older than 9.10.2"), std::string::npos);
  EXPECT_NE(RowOf("NCCL", found).finding.find("older than 2.26"), std::string::npos);
  EXPECT_NE(RowOf("MPI", found).finding.find("not Open MPI"), std::string::npos);
  for (const char* what : {"CUDA driver", "cuDNN", "NCCL", "MPI"}) {
    EXPECT_EQ(RowOf(what, found).health, Health::kNote) << what;
  }
  // Within one major version an older driver will do.
  found.cuda_driver = {"13.0", 13000, "/lib/libcuda.so.1", ""};
  found.cuda_runtime = {"13.1", 13010, "/cuda/libcudart.so.13", ""};
  EXPECT_EQ(RowOf("CUDA driver", found).health, Health::kOk);
}

TEST(DoctorChecks, AFolderIsLookedAt) {
  const FolderState here = StateOfFolder(".");
  EXPECT_TRUE(here.exists);
  EXPECT_GT(here.free_bytes, 0);
  EXPECT_FALSE(StateOfFolder("./nowhere").exists);
  EXPECT_FALSE(StateOfFolder("/proc").writable && StateOfFolder("/proc").free_bytes > 0);
}

TEST(DoctorChecks, FoldersThatTakeNoFilesAreNamedBeforeAnyJobIsSent) {
  const FolderState fine = {
      .path = "/here", .exists = true, .writable = true, .free_bytes = int64_t{1} << 40};
  for (const auto& check : {CheckWorkingFolder, CheckHome, CheckTemporary, CheckSharedMemory}) {
    EXPECT_EQ(check(fine).health, Health::kOk) << check(fine).finding;
  }
  FolderState closed = fine;
  closed.writable = false;
  const FolderState missing = {.path = "/here"};
  FolderState tiny = fine;
  tiny.free_bytes = 1 << 20;
  FolderState remote = fine;
  remote.over_network = true;
  const auto expect = [](const Check& check, Health health, const std::string& part) {
    EXPECT_EQ(check.health, health) << check.finding;
    EXPECT_NE(check.finding.find(part), std::string::npos) << check.finding;
  };
  expect(CheckWorkingFolder(closed), Health::kBad, "/here cannot be written to");
  expect(CheckWorkingFolder(remote), Health::kNote, "--study on a local disk");
  expect(CheckWorkingFolder(tiny), Health::kNote, "1.00 MiB free");
  expect(CheckHome(remote), Health::kNote, "--study on a local disk");
  expect(CheckHome(missing), Health::kNote, "/here is not there: measured profiles");
  expect(CheckTemporary(missing), Health::kBad, "/here is not there; set TMPDIR");
  expect(CheckTemporary(tiny), Health::kNote, "1.00 MiB free: mpirun");
  expect(CheckSharedMemory(missing), Health::kNote, "/here is not there");
  expect(CheckSharedMemory(tiny), Health::kNote, "exchange messages slowly");
}

TEST(DoctorChecks, DescribesTheMachine) {
  for (const Check& check : CheckMachine()) {
    EXPECT_NE(check.finding, "") << check.what;
    EXPECT_NE(check.health, Health::kBad) << check.what << ": " << check.finding;
  }
  EXPECT_EQ(CheckGpus().what, "GPUs");
}

}  // namespace
}  // namespace trimtab
