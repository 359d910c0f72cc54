#include "engine/base/io/isolated_call.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <stdexcept>

namespace trimtab {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

IsolatedCall::Result Call(const std::function<std::string()>& work,
                          milliseconds patience = seconds(60)) {
  return IsolatedCall(work).Wait(steady_clock::now() + patience);
}

TEST(IsolatedCall, ReturnsWhatTheWorkReturns) {
  const std::string large(300000, 'x');
  const IsolatedCall::Result result = Call([&] { return large; });
  EXPECT_EQ(result.text, large);
  EXPECT_EQ(result.failure, "");
  EXPECT_EQ(Call([] { return std::string(); }).failure, "");
}

TEST(IsolatedCall, KeepsOutputToItself) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto result = Call([] {
    std::puts("noise");
    std::fputs("noise", stderr);
    std::fflush(nullptr);
    return std::string("quiet");
  });
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(result.text, "quiet");
}

TEST(IsolatedCall, SurvivesACrash) {
  EXPECT_EQ(Call([]() -> std::string { std::abort(); }).failure, "it crashed (Aborted)");
  EXPECT_EQ(Call([]() -> std::string {
              std::raise(SIGSEGV);
              return "";
            }).failure,
            "it crashed (Segmentation fault)");
  EXPECT_EQ(Call([]() -> std::string { ::_exit(3); }).failure, "it ended the process");
  EXPECT_EQ(Call([]() -> std::string { throw std::runtime_error("no"); }).failure,
            "it ended the process");
}

TEST(IsolatedCall, EndsWhatDoesNotAnswer) {
  const auto start = steady_clock::now();
  const auto hang = []() -> std::string {
    while (true) ::pause();
  };
  EXPECT_EQ(Call(hang, milliseconds(50)).failure, "it did not answer in time");
  { const IsolatedCall forgotten(hang); }
  EXPECT_LT(steady_clock::now() - start, seconds(30));
}

TEST(IsolatedCall, RunsSeveralAtOnce) {
  IsolatedCall first([] { return std::string("first"); });
  IsolatedCall second([] { return std::string("second"); });
  const auto deadline = steady_clock::now() + seconds(60);
  EXPECT_EQ(second.Wait(deadline).text, "second");
  EXPECT_EQ(first.Wait(deadline).text, "first");
}

}  // namespace
}  // namespace trimtab
