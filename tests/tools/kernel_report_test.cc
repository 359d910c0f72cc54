// tools/scripts/kernel_report.py: what it reads out of ptxas and of PTX, and what it says of the
// project's own kernels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/tools/shell.h"

namespace trimtab {
namespace {

namespace fs = std::filesystem;

std::string MaxKernel(char type) {
  return fmt::format("_ZN7trimtab12_GLOBAL__N_19MaxKernelILi4E{}EEvNS0_3RowEPKT0_Pf", type);
}

/// What ptxas prints of MaxKernel<4, T>.
std::string Entry(char type, int registers, int spilled, const std::string& arch = "sm_90a") {
  return fmt::format(
      "ptxas info    : Compiling entry function '{0}' for '{3}'\n"
      "ptxas info    : Function properties for {0}\n"
      "    {2} bytes stack frame, {2} bytes spill stores, {2} bytes spill loads\n"
      "ptxas info    : Used {1} registers, used 1 barriers, 128 bytes smem\n",
      MaxKernel(type), registers, spilled, arch);
}

/// A loop that reads `loads` times 16 bytes before it uses the first.
std::string Loop(int loads) {
  std::string body = "$L__BB0_2:\n";
  for (int i = 0; i < loads; ++i) {
    body += fmt::format(
        "\tld.global.nc.v4.f32 \t{{%f{0}, %f{1}, %f{2}, %f{3}}}, [%rd1+{4}];\n"
        "\tmax.f32 \t%f100, %f{0}, %f100;\n",
        4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3, 16 * i);
  }
  return body + "\tadd.s64 \t%rd1, %rd1, 64;\n\t@%p1 bra \t$L__BB0_2;\n";
}

/// The PTX of MaxKernel<4, T> with `body` between what it reads and what it writes.
std::string Ptx(char type, const std::string& body, const std::string& arch = "sm_90a") {
  return fmt::format(
      ".version 8.4\n.target {}\n.address_size 64\n\n"
      ".entry {}(\n\t.param .u64 p0\n)\n.maxntid 256, 1, 1\n{{\n\t.reg .f32 \t%f<101>;\n"
      "\tld.param.u64 \t%rd1, [p0];\n{}\tst.global.f32 \t[%rd2], %f100;\n\tret;\n}}\n",
      arch, MaxKernel(type), body);
}

Outcome Report(const std::string& printed, const std::string& ptx,
               const std::string& options = "") {
  const std::string file = (fs::path(testing::TempDir()) / "max.cu").string();
  std::ofstream(file + ".ptxas") << "ptxas info    : 0 bytes gmem\n" << printed;
  std::ofstream(file + ".ptx") << ptx;
  return Shell(fmt::format("python3 tools/scripts/kernel_report.py {0} '{1}.ptxas' '{1}.ptx'",
                           options, file));
}

TEST(KernelReport, HasARowForEachTemplateWithTheMostThatAnInstanceTakes) {
  const Outcome outcome =
      Report(Entry('f', 32, 0) + Entry('d', 64, 0), Ptx('f', Loop(1)) + Ptx('d', Loop(4)));
  EXPECT_EQ(outcome.status, 0);
  // A warp of 64 registers a thread takes 2048 of 65536: 32 warps. Each of their threads has 4
  // loads of 16 bytes on the way. A turn has 4 loads, 4 maxima, a sum and a branch for 64 bytes.
  EXPECT_NE(
      outcome.output.find("| `max.cu` | MaxKernel | 2 | 64 | 1024 | 0 | 0 | 128 | 4 | 64 | 0.2 |"),
      std::string::npos)
      << outcome.output;
}

TEST(KernelReport, GivesWhatDiffersForEveryGpu) {
  const Outcome outcome = Report(Entry('f', 64, 0) + Entry('f', 32, 0, "sm_80"),
                                 Ptx('f', Loop(4)) + Ptx('f', Loop(4), "sm_80"));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("| `max.cu` | MaxKernel | 1 | 32 / 64 | 2048 / 1024 | 0 | 0 | 128 "
                                "| 4 | 128 / 64 | 0.2 |"),
            std::string::npos)
      << outcome.output;
}

TEST(KernelReport, RefusesAGpuThatItDoesNotKnow) {
  const Outcome outcome = Report(Entry('f', 64, 0, "sm_89"), Ptx('f', Loop(4), "sm_89"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.output,
            "kernel_report: max.cu: compiled for sm_89; known are sm_80, sm_90a, sm_100\n");
}

TEST(KernelReport, ASpillFailsTheCheck) {
  const std::string ptx = Ptx('f', Loop(4)) + Ptx('d', Loop(4));
  EXPECT_EQ(Report(Entry('f', 40, 0), ptx, "--check").status, 0);
  const Outcome outcome = Report(Entry('f', 40, 0) + Entry('d', 64, 16), ptx, "--check");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.output, "max.cu: MaxKernel spills 32 bytes on sm_90a: not allowed\n");
}

TEST(KernelReport, TooFewBytesInFlightFailTheCheck) {
  const auto checked = [](const std::string& body) {
    return Report(Entry('f', 32, 0), Ptx('f', body), "--check");
  };
  EXPECT_EQ(checked(Loop(2)).status, 0);
  const Outcome outcome = checked(Loop(1));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.output,
            "max.cu: MaxKernel has in flight 32.8 kB of 40 on sm_90a: not allowed\n");
  // What is stored must have arrived: no later load is on its way beside it.
  const std::string store = "\tst.global.f32 \t[%rd2], %f100;\n";
  std::string parted = Loop(4);
  for (size_t at = 0; (at = parted.find("%f100;\n", at)) != std::string::npos;) {
    at += sizeof("%f100;\n") - 1;
    parted.insert(at, store);
    at += store.size();
  }
  EXPECT_EQ(checked(parted).output, outcome.output);
  // Nor one that reads where a loaded value says.
  EXPECT_EQ(checked("\tld.global.v2.u64 \t{%rd3, %rd4}, [%rd1];\n"
                    "\tld.global.v2.u64 \t{%rd5, %rd6}, [%rd3];\n")
                .output,
            outcome.output);
  // A block within the kernel, of registers of its own, does not end it.
  const std::string block = "\t{\n\t.reg .b32 %temp;\n\tmov.b64 \t{%r1, %temp}, %fd1;\n\t}\n";
  EXPECT_EQ(checked(block + Loop(2)).status, 0);
  EXPECT_EQ(checked(block + Loop(1)).output, outcome.output);
  // A kernel that reads nothing waits for nothing.
  EXPECT_EQ(checked("").status, 0);
}

TEST(KernelReport, AKernelWithoutPtxIsRefused) {
  const Outcome outcome = Report(Entry('f', 40, 0), Ptx('d', Loop(4)));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("is in none of the .ptx files"), std::string::npos);
}

TEST(KernelReport, FilesWithoutKernelsAreRefused) {
  const Outcome outcome = Report("", "", "--check");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("no kernel in these files"), std::string::npos);
}

TEST(KernelReport, TheProjectsKernelsPass) {
  if (!fs::exists("engine/ops/cuda/_objs")) GTEST_SKIP() << "built without the CUDA toolkit";
  const Outcome outcome =
      Shell("python3 tools/scripts/kernel_report.py --check $(find -L engine -name '*.ptx*')");
  if (outcome.output.find("compiled for") != std::string::npos) GTEST_SKIP() << outcome.output;
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

}  // namespace
}  // namespace trimtab
