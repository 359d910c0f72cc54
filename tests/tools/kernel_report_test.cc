// tools/scripts/kernel_report.py: what it reads out of ptxas, and what it says of the project's
// own kernels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/tools/shell.h"

namespace trimtab {
namespace {

namespace fs = std::filesystem;

/// What ptxas prints of MaxKernel<4, T>.
std::string Entry(char type, int registers, int spilled) {
  const std::string name =
      fmt::format("_ZN7trimtab12_GLOBAL__N_19MaxKernelILi4E{}EEvNS0_3RowEPKT0_Pf", type);
  return fmt::format(
      "ptxas info    : Compiling entry function '{0}' for 'sm_90a'\n"
      "ptxas info    : Function properties for {0}\n"
      "    {2} bytes stack frame, {2} bytes spill stores, {2} bytes spill loads\n"
      "ptxas info    : Used {1} registers, used 1 barriers, 128 bytes smem\n",
      name, registers, spilled);
}

Outcome Report(const std::string& printed, const std::string& options = "") {
  const fs::path file = fs::path(testing::TempDir()) / "max.cu.ptxas";
  std::ofstream(file) << "ptxas info    : 0 bytes gmem\n" << printed;
  return Shell(
      fmt::format("python3 tools/scripts/kernel_report.py {} '{}'", options, file.string()));
}

TEST(KernelReport, HasARowForEachTemplateWithTheMostThatAnInstanceTakes) {
  const Outcome outcome = Report(Entry('f', 40, 0) + Entry('d', 64, 0));
  EXPECT_EQ(outcome.status, 0);
  // A warp of 64 registers a thread takes 2048 of 65536: 32 warps.
  EXPECT_NE(outcome.output.find("| `max.cu` | MaxKernel | 2 | sm_90a | 64 | 1024 | 0 | 0 | 128 |"),
            std::string::npos)
      << outcome.output;
}

TEST(KernelReport, ASpillFailsTheCheck) {
  EXPECT_EQ(Report(Entry('f', 40, 0), "--check").status, 0);
  const Outcome outcome = Report(Entry('f', 40, 0) + Entry('d', 255, 16), "--check");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.output, "max.cu: MaxKernel spills 32 bytes on sm_90a: not allowed\n");
}

TEST(KernelReport, FilesWithoutKernelsAreRefused) {
  const Outcome outcome = Report("", "--check");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("no kernel in these files"), std::string::npos);
}

TEST(KernelReport, NoKernelOfTheProjectSpills) {
  if (!fs::exists("engine/ops/cuda/_objs")) GTEST_SKIP() << "built without the CUDA toolkit";
  const Outcome outcome =
      Shell("python3 tools/scripts/kernel_report.py --check $(find -L engine -name '*.ptxas')");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

}  // namespace
}  // namespace trimtab
