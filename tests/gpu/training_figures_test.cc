// training_figures with a trimtab and a PyTorch that only note how they were called.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/tools/shell.h"

namespace trimtab {
namespace {

namespace fs = std::filesystem;

class TrainingFiguresTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / "figures";
    fs::remove_all(root_);
    fs::create_directories(root_ / "bin");
    Place(root_ / "trimtab", R"(echo "$LD_LIBRARY_PATH|$*" >>"$CALLS/trimtab.calls"
printf '{\n  "tokens_per_s": 16000.5,\n  "peak_mem_bytes": 7\n}\n')");
    Place(root_ / "bin" / "python3", R"(echo "$LD_LIBRARY_PATH|$*" >>"$CALLS/python3.calls"
echo '{"tokens_per_s": 10000}')");
  }

  /// Under the environment of the bundle, started by one whose own library path is /of/caller.
  Outcome Run(const std::string& arguments) const {
    return Shell(fmt::format(
        "export CALLS='{0}' TMPDIR='{0}' TRIMTAB_ROOT='{0}' PATH='{0}/bin':/usr/bin:/bin "
        "LD_LIBRARY_PATH=/of/caller; here=$PWD/tools/bundle; . tools/bundle/environment.sh; "
        "sh tests/gpu/training_figures {1}",
        root_.string(), arguments));
  }

  /// Calls of a program: "LD_LIBRARY_PATH|arguments".
  std::vector<std::string> Calls(const std::string& program) const {
    std::vector<std::string> calls;
    std::ifstream file(root_ / (program + ".calls"));
    for (std::string line; std::getline(file, line);) calls.push_back(line);
    return calls;
  }

 private:
  static void Place(const fs::path& path, const std::string& script) {
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(path, fs::perms::owner_all);
  }

  fs::path root_;
};

int64_t ValueOf(const std::string& flag, const std::string& call) {
  const size_t at = call.find(flag + " ");
  return at == std::string::npos ? -1 : std::stoll(call.substr(at + flag.size() + 1));
}

TEST_F(TrainingFiguresTest, NoFigureCountsTheStepsThatChooseAndCapture) {
  for (const char* only : {"llama2-7b-fp8", "llama2-7b-bf16", "gpt2-124m"}) {
    Run(fmt::format("--only={}", only));
  }
  const auto calls = Calls("trimtab");
  ASSERT_EQ(calls.size(), 3u);
  for (const std::string& call : calls) {
    EXPECT_GE(ValueOf("--warmup", call), 2) << call;
    EXPECT_GE(ValueOf("--steps", call), 5) << call;
    EXPECT_GE(ValueOf("--min-seconds", call), 60) << call;
    // As many steps must be possible: one takes half a minute.
    EXPECT_GE(ValueOf("--max-seconds", call), 5 * 37) << call;
  }
  for (const std::string& call : Calls("python3")) {
    EXPECT_GE(ValueOf("--warmup", call), 2) << call;
    EXPECT_GE(ValueOf("--steps", call), 5) << call;
  }
}

TEST_F(TrainingFiguresTest, PyTorchRunsUnderTheLibraryPathOfTheCaller) {
  const Outcome outcome = Run("--only=llama2-7b-bf16");
  EXPECT_NE(outcome.output.find("FIGURE llama2-7b-bf16: 16000.5 tokens/s"), std::string::npos)
      << outcome.output;
  ASSERT_EQ(Calls("trimtab").size(), 1u);
  EXPECT_NE(Calls("trimtab")[0].find("/tools/bundle/lib"), std::string::npos)
      << Calls("trimtab")[0];
  const auto calls = Calls("python3");
  ASSERT_EQ(calls.size(), 2u) << outcome.output;  // both attentions
  for (const std::string& call : calls) EXPECT_TRUE(call.starts_with("/of/caller|")) << call;
}

}  // namespace
}  // namespace trimtab
