// tools/test: how it counts what Bazel reports, and what it refuses.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/shell.h"

namespace trimtab {
namespace {

std::string Case(const std::string& name, const std::string& inner = "") {
  return fmt::format(R"(<testcase name="{}" status="run" classname="Suite">{}</testcase>)", name,
                     inner);
}

std::string SkippedCase(const std::string& name, const std::string& reason) {
  return Case(name, fmt::format(R"(<skipped message="file.cc:1&#x0A;{}"/>)", reason));
}

/// The events of one run of Bazel and the summary of them.
class SummarizeTestsTest : public testing::Test {
 protected:
  /// The test was asked for, under the tag if there is one.
  void Configured(const std::string& label, const std::string& tag = "") {
    events_ += fmt::format(R"({{"id":{{"targetConfigured":{{"label":"{}"}}}},)"
                           R"("configured":{{"testSize":"SMALL","tag":[{}]}}}})"
                           "\n",
                           label, tag.empty() ? "" : '"' + tag + '"');
  }

  /// `result`: more fields of the event, each followed by a comma.
  void Ran(const std::string& label, const std::string& status, const std::string& cases,
           const std::string& result = "") {
    const std::string xml = folder_ + "/" + std::to_string(++reports_) + ".xml";
    WriteBytes(xml, "<testsuites><testsuite>" + cases + "</testsuite></testsuites>");
    Configured(label);
    events_ +=
        fmt::format(R"({{"id":{{"testResult":{{"label":"{}"}}}},"testResult":{{{}"status":"{}",)"
                    R"("testActionOutput":[{{"name":"test.xml","uri":"file://{}"}}]}}}})"
                    "\n",
                    label, result, status, xml);
  }

  void NotBuilt(const std::string& label, const std::string& payload) {
    events_ += fmt::format(R"({{"id":{{"targetCompleted":{{"label":"{}"}}}},{}}})"
                           "\n",
                           label, payload);
  }

  Outcome Summarize(int bazel_status, const std::string& flags = "") {
    WriteBytes(folder_ + "/events", events_);
    return Shell(
        fmt::format("python3 tools/scripts/summarize_tests.py {0}/events --bazel-status {1} "
                    "--skipped-list {0}/skipped {2}",
                    folder_, bazel_status, flags));
  }

  const std::string folder_ = ScratchFolder();

 private:
  std::string events_;
  int reports_ = 0;
};

TEST_F(SummarizeTestsTest, CountsCasesNotPrograms) {
  Ran("//a", "PASSED", Case("One") + Case("Two"));
  Ran("//b", "FAILED", Case("Three") + Case("Four", "<failure/>"));
  const Outcome summary = Summarize(3);
  EXPECT_EQ(summary.status, 1);
  EXPECT_EQ(summary.output, "failed: //b Suite.Four\n3 passed, 1 failed\n");
}

TEST_F(SummarizeTestsTest, PrintsEachReasonOnceAndListsTheCases) {
  Ran("//a", "PASSED", Case("One") + SkippedCase("Two", "no GPU") + SkippedCase("Three", "no MPI"));
  Ran("//b", "PASSED", SkippedCase("Four", "no GPU"));
  const Outcome summary = Summarize(0);
  EXPECT_EQ(summary.status, 0);
  EXPECT_EQ(summary.output,
            "skipped: 2 cases: no GPU\nskipped: 1 case: no MPI\n"
            "skipped cases by name: " +
                folder_ +
                "/skipped\n"
                "1 passed, 0 failed\n");
  EXPECT_EQ(ReadBytes(folder_ + "/skipped"),
            "//a Suite.Two: no GPU\n//a Suite.Three: no MPI\n//b Suite.Four: no GPU\n");
}

TEST_F(SummarizeTestsTest, AddsUpTheTotalsOfAllCases) {
  const auto with = [](const std::string& property, int value) {
    return fmt::format(R"(<properties><property name="{}" value="{}"/></properties>)", property,
                       value);
  };
  Ran("//a", "PASSED",
      Case("One", with("total_layouts_trained", 5)) +
          Case("Two", with("total_layouts_trained", 7)));
  Ran("//b", "PASSED", Case("Three", with("total_steps", 2)) + Case("Four", with("error", 3)));
  EXPECT_EQ(Summarize(0).output, "layouts trained: 12\nsteps: 2\n4 passed, 0 failed\n");
}

TEST_F(SummarizeTestsTest, SaysHowLongEachPackageTook) {
  const auto took = [](int milliseconds) {
    return fmt::format(R"("testAttemptDurationMillis":"{}",)", milliseconds);
  };
  Ran("//quick:a", "PASSED", Case("One"), took(999));
  Ran("//some:a", "PASSED", Case("One"), took(1500));
  Ran("//some:b", "PASSED", Case("Two"), took(1600) + R"("cachedLocally":true,)");
  Ran("//much/more:a", "PASSED", Case("One"),
      took(61000) + R"("executionInfo":{"cachedRemotely":true},)");
  EXPECT_EQ(Summarize(0).output,
            "much/more took 61 s, 61 s of it in earlier runs\n"
            "some took 3 s, 1 s of it in earlier runs\n"
            "4 passed, 0 failed\n");
}

TEST_F(SummarizeTestsTest, ProgramsThatLeaveNoReportFail) {
  // Bazel's stand-in for a report names no class.
  Ran("//exits", "PASSED", R"(<testcase name="exits" status="run"></testcase>)");
  Ran("//killed", "TIMEOUT", Case("One"));
  Configured("//never");
  const Outcome summary = Summarize(3);
  EXPECT_EQ(summary.status, 1);
  EXPECT_EQ(summary.output,
            "failed: //exits (ended before it could report)\n"
            "failed: //killed (timeout without a report)\n"
            "failed: //never (did not run)\n"
            "1 passed, 3 failed\n");
}

TEST_F(SummarizeTestsTest, ABrokenBuildFails) {
  Ran("//a", "PASSED", Case("One"));
  EXPECT_NE(Summarize(1).output.find("failed: the build (bazel exited with 1)\n1 passed, 1 failed"),
            std::string::npos);
}

TEST_F(SummarizeTestsTest, WhatNeedsAnotherMachineIsSkipped) {
  Configured("//cuda");
  NotBuilt("//cuda", R"("aborted":{"reason":"SKIPPED"})");
  const Outcome summary = Summarize(0);
  EXPECT_EQ(summary.status, 0);
  EXPECT_TRUE(summary.output.starts_with("skipped: 1 case: needs the CUDA toolkit\n"))
      << summary.output;
}

TEST_F(SummarizeTestsTest, WhatIsLeftOutMustStillBuild) {
  Configured("//long", "exhaustive");
  Configured("//rotten", "exhaustive");
  NotBuilt("//rotten", R"("completed":{})");
  const Outcome plain = Summarize(1, "--left-out exhaustive");
  EXPECT_NE(plain.output.find("skipped: 1 case: exhaustive, left to tools/test --all\n"),
            std::string::npos)
      << plain.output;
  EXPECT_NE(plain.output.find("failed: //rotten (did not run)\n0 passed, 1 failed\n"),
            std::string::npos)
      << plain.output;
  EXPECT_NE(Summarize(1).output.find("\n0 passed, 2 failed\n"), std::string::npos);
}

TEST(ToolsTest, SaysItsUsage) {
  const Outcome help = Shell("tools/test --help");
  EXPECT_EQ(help.status, 0);
  EXPECT_TRUE(help.output.starts_with("usage: tools/test [--all]\n")) << help.output;
}

TEST(ToolsTest, RefusesWhatItDoesNotKnow) {
  const Outcome unknown = Shell("tools/test --al");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_EQ(unknown.output, "error: unknown argument '--al'; known are --all and --help\n");
}

}  // namespace
}  // namespace trimtab
