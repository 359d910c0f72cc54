// Text for people fits 100 columns, however long the layouts are.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/run_cli.h"
#include "tools/text/wrap.h"

namespace trimtab {
namespace {

constexpr char kLongLayout[] =
    "tp=4,sp=1,pp=8,vp=2,ep=4,dp=16,zero=1,overlap_param_gather=1,schedule=interleaved-1f1b,mbs=1,"
    "recompute=selective:layernorm+mlp_act,precision=bf16,master=remainder,moments=bf16";

void ExpectFits(std::vector<std::string> words) {
  words.push_back("-q");
  const CliResult result = RunCli(words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(result.out.empty());
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(DisplayWidth(line), kMostColumns) << words.front() << ": " << line;
  }
}

class TerminalWidth : public testing::Test {
 protected:
  std::string folder_ = ScratchFolder();
};

TEST_F(TerminalWidth, OfListsOfWhatIsBuiltIn) {
  ExpectFits({"models"});
  ExpectFits({"clusters"});
  ExpectFits({"clusters", "16x8xh100"});
  ExpectFits({"doctor", "--rules"});
  ExpectFits({"doctor", "--no-speed"});
}

TEST_F(TerminalWidth, OfEstimates) {
  ExpectFits({"estimate", "--model", "mixtral-8x7b", "--cluster", "64x8xh100", "--gbs", "1024",
              "--seq", "4096", "--layout", kLongLayout, "--tokens", "15T", "--explain", "--tier",
              "closed-form"});
  ExpectFits({"estimate", "--for", "serving", "--model", "llama3-70b", "--cluster", "8xh200",
              "--layout", "tp=4,pp=1,weights=fp8,cache=fp8,sequences=64,tokens=16384,replicas=2",
              "--concurrency", "64", "--requests", "64"});
}

TEST_F(TerminalWidth, OfASearchForTraining) {
  ExpectFits({"search",
              "--model",
              "llama2-7b",
              "--cluster",
              "2x8xh100",
              "--gbs",
              "128",
              "--seq",
              "4096",
              "--gpus",
              "8..16",
              "--precision",
              "bf16",
              "--optimizer-state",
              "full,reduced",
              "--prove",
              "0",
              "--tokens",
              "2T",
              "--top",
              "30",
              "--study",
              folder_ + "/study.db"});
  ExpectFits({"search", "--model", "llama2-7b", "--cluster", "2x8xh100", "--gbs", "128", "--seq",
              "4096", "--space"});
}

TEST_F(TerminalWidth, OfASearchForServing) {
  ExpectFits({"search", "--for", "serving", "--model", "llama2-7b", "--cluster", "8xh200",
              "--concurrency", "16", "--requests", "32", "--require", "ttft.p99<60s"});
}

TEST_F(TerminalWidth, OfValidations) {
  ExpectFits({"validate", "--runs", "testdata/published/runs.json"});
  ExpectFits({"validate", "--runs", "testdata/published/serving.json"});
  ExpectFits({"validate", "--runs", "testdata/published/runs.json", "--peers",
              "testdata/published/peers.json"});
}

}  // namespace
}  // namespace trimtab
