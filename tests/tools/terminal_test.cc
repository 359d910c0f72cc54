#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "tools/cli/output.h"
#include "tools/cli/progress.h"
#include "tools/cli/signals.h"
#include "tools/cli/table.h"

namespace trimtab {
namespace {

TEST(Table, AlignsColumnsWithoutTrailingBlanks) {
  Table table({{"name"}, {"count", Align::kRight}, {"note"}});
  table.AddRow({"a", "1", ""});
  table.AddRow({"longer", "1000", "é"});
  EXPECT_EQ(table.ToText(false),
            "name    count  note\n"
            "a           1\n"
            "longer   1000  é\n");
  EXPECT_TRUE(table.ToText(true).starts_with("\x1b[1mname"));
}

TEST(Table, WrapsTitlesAndThenTextToFit) {
  Table table({{"layout"}, {"a figure with a long title", Align::kRight}, {"note"}});
  table.AddRow(
      {"tp=8," + std::string(50, 'x') + ",mbs=1", "12,345", std::string(30, 'y') + " end"});
  EXPECT_EQ(table.ToText(false), std::string(63, ' ') + "a\n" + std::string(58, ' ') + "figure\n" +
                                     std::string(58, ' ') + "with a\n" + std::string(60, ' ') +
                                     "long\n" + "layout" + std::string(53, ' ') + "title  note\n" +
                                     "tp=8," + std::string(50, 'x') + ",  12,345  " +
                                     std::string(30, 'y') + " end\nmbs=1\n");
}

TEST(Table, TakesOutColumnsOfEqualCells) {
  Table table({{"#"}, {"state"}, {"source"}});
  table.AddRow({"1", "full", "measured"});
  EXPECT_TRUE(table.TakeUniform({"state"}).empty());
  table.AddRow({"2", "full", "modelled"});
  EXPECT_EQ(table.TakeUniform({"state", "source"}), std::vector<std::string>{"state full"});
  EXPECT_EQ(table.ToText(false), "#  source\n1  measured\n2  modelled\n");
}

TEST(Table, WrapsValues) {
  std::string words;
  for (int i = 0; i < 30; ++i) words += "word ";
  const std::string text = KeyValueText({{"key", words}});
  EXPECT_TRUE(text.starts_with("key  word word ")) << text;
  EXPECT_NE(text.find("word\n     word"), std::string::npos) << text;
}

TEST(Table, AlignsValues) {
  EXPECT_EQ(KeyValueText({{"a", "1"}, {"long name", "2"}}), "a          1\nlong name  2\n");
  EXPECT_EQ(KeyValueText({{"a", ""}, {"bb", "2"}}), "a\nbb  2\n");
}

TEST(Progress, SaysWhatIsKnown) {
  const ProgressState state = {.label = "proving",
                               .done = 5,
                               .failed = 1,
                               .running = 1,
                               .total = 10,
                               .best = "310 tokens/s"};
  EXPECT_EQ(ProgressText(state, 4.0, 200),
            "[##########..........] proving 5/10, 1 failed, 1 running, best 310 tokens/s, 4 s, "
            "ETA 4 s");
  EXPECT_EQ(ProgressText({.label = "MiB read", .done = 7}, 1.0, 80), "MiB read 7, 1 s");
  EXPECT_EQ(ProgressText(state, 4.0, 20).size(), 19u);
}

TEST(Progress, DrawsNoBarWithoutATerminal) {
  testing::internal::CaptureStderr();
  {
    Progress progress(OutputOptions{});
    progress.Update({.label = "training", .done = 1, .total = 2});
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Color, FollowsTheFlagThenTheEnvironment) {
  OutputOptions options;
  options.color = "always";
  EXPECT_TRUE(UseColor(options, 1));
  options.color = "never";
  EXPECT_FALSE(UseColor(options, 1));
  options.color = "auto";
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(UseColor(options, 1));
  ::unsetenv("NO_COLOR");
}

TEST(OneLine, LeavesNoLineBreaks) { EXPECT_EQ(OneLine("a\nb\r\n"), "a b"); }

TEST(Signals, AskNicelyThenFirmly) {
  CatchStopSignals();
  EXPECT_EQ(RequestedStop(), StopLevel::kNone);
  EXPECT_EQ(StopExitCode(), 0);
  testing::internal::CaptureStderr();
  std::raise(SIGINT);
  EXPECT_EQ(RequestedStop(), StopLevel::kDrain);
  std::raise(SIGTERM);
  EXPECT_EQ(RequestedStop(), StopLevel::kCancel);
  EXPECT_EQ(StopExitCode(), 130);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("once more"), std::string::npos);
}

TEST(Signals, AHangUpAsksToStopUnlessItIsIgnored) {
  CatchStopSignals();
  testing::internal::CaptureStderr();
  std::raise(SIGHUP);
  EXPECT_EQ(RequestedStop(), StopLevel::kDrain);
  EXPECT_EQ(StopExitCode(), 129);
  ReleaseStopSignals();
  std::signal(SIGHUP, SIG_IGN);  // as nohup does
  CatchStopSignals();
  EXPECT_TRUE(IgnoresHangUp());
  std::raise(SIGHUP);
  EXPECT_EQ(RequestedStop(), StopLevel::kNone);
  ReleaseStopSignals();
  std::raise(SIGHUP);
  std::signal(SIGHUP, SIG_DFL);
  testing::internal::GetCapturedStderr();
}

// mpirun's ranks get it from their starter, whose exit code counts.
TEST(Signals, TheStartersOwnIsAnExitCodeWhereNobodyStartedThis) {
  CatchStopSignals(StopNotice::kNone);
  std::raise(SIGUSR1);
  EXPECT_EQ(RequestedStop(), StopLevel::kDrain);
  EXPECT_EQ(StopExitCode(), 128 + SIGUSR1);
  ::setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  ::setenv("OMPI_COMM_WORLD_LOCAL_RANK", "0", 1);
  ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
  EXPECT_EQ(StopExitCode(), 0);
  for (const char* name : {"RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"}) {
    ::unsetenv((std::string("OMPI_COMM_WORLD_") + name).c_str());
  }
  ReleaseStopSignals();
}

// Kernels that are compiled while a program runs keep values there.
TEST(Signals, LeaveWhatIsBelowTheStackAlone) {
  CatchStopSignals(StopNotice::kNone);
  constexpr int64_t kDistance = 4096;  // calls of this function need less
  constexpr int64_t kBytes = 32768;
  volatile char* const end = static_cast<char*>(__builtin_frame_address(0)) - kDistance;
  std::thread sender([interrupted = ::pthread_self()] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ::pthread_kill(interrupted, SIGINT);
  });
  for (int64_t i = 1; i <= kBytes; ++i) end[-i] = 'x';
  while (RequestedStop() == StopLevel::kNone) {
  }
  int64_t changed = 0;
  for (int64_t i = 1; i <= kBytes; ++i) changed += end[-i] != 'x' ? 1 : 0;
  EXPECT_EQ(changed, 0);
  sender.join();
}

TEST(SignalsDeathTest, TheThirdLeaves) {
  const auto thrice = [] {
    CatchStopSignals();
    for (int i = 0; i < 3; ++i) std::raise(SIGTERM);
  };
  EXPECT_EXIT(thrice(), testing::ExitedWithCode(143), "once more");
}

}  // namespace
}  // namespace trimtab
