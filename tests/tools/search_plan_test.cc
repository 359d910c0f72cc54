// What `trimtab search --plan` would send, for each launcher; and that it sends nothing.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/run_cli.h"

namespace trimtab {
namespace {

struct PlanCase {
  const char* name;
  const char* cluster;
  std::vector<std::string> launcher;  // what follows --launcher
  std::vector<std::string> parts;     // of what is printed for each trial, in this order
};

void PrintTo(const PlanCase& plan, std::ostream* out) { *out << plan.name; }

class SearchPlan : public testing::TestWithParam<PlanCase> {};

TEST_P(SearchPlan, ShowsTheTrialsOfTheBestAndSendsNothing) {
  const std::string study = ScratchFolder() + "/study.db";
  std::vector<std::string> arguments = {
      "search", "--model", "gpt2-124m",      "--cluster", GetParam().cluster,
      "--gbs",  "8",       "--seq",          "128",       "--prove",
      "2",      "--fix",   "precision=bf16", "--study",   study,
      "--plan", "-q",      "--dry-runs",     "0",         "--launcher"};
  arguments.insert(arguments.end(), GetParam().launcher.begin(), GetParam().launcher.end());
  const CliResult result = RunCli(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  size_t at = 0;
  for (const char* trial : {"first", "second"}) {
    for (const std::string& part : GetParam().parts) {
      at = result.out.find(part, at);
      ASSERT_NE(at, std::string::npos) << trial << " trial, " << part << ":\n" << result.out;
      at += part.size();
    }
  }
  EXPECT_EQ(result.out.find(GetParam().parts.back(), at), std::string::npos) << "a third trial:\n"
                                                                             << result.out;
  for (const auto& left :
       std::filesystem::directory_iterator(std::filesystem::path(study).parent_path())) {
    ADD_FAILURE() << "left behind: " << left.path();
  }
}

/// What `search --plan` says of a cluster of two nodes.
CliResult PlanOf(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"search",     "--model",     "gpt2-124m",
                                        "--cluster",  "2x2xh100",    "--gbs",
                                        "8",          "--seq",       "128",
                                        "--prove",    "1",           "--fix",
                                        "tp=1",       "--precision", "bf16",
                                        "--dry-runs", "0",           "--plan",
                                        "-q",         "--study",     ScratchFolder() + "/study.db"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunCli(arguments);
}

TEST(SearchPlans, AreJsonToo) {
  const CliResult result = PlanOf({"--json", "--launcher", "slurm"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json plans = nlohmann::json::parse(result.out).at("plans");
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0]["reserve"][0], "sbatch");
  EXPECT_EQ(plans[0]["start"][0], "srun");
}

TEST(SearchPlans, OfNoTrialsSaySo) {
  const CliResult result = RunCli({"search", "--model", "gpt2-tiny", "--cluster", "8xh100", "--gbs",
                                   "8", "--seq", "64", "--prove", "0", "--plan", "--launcher",
                                   "slurm", "--study", ScratchFolder() + "/study.db", "-q"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("--prove 0 measures nothing, so nothing would be sent"),
            std::string::npos)
      << result.err;
}

TEST(SearchPlans, RefuseNodesThatTheClusterHasNot) {
  for (const auto& [launcher, says] :
       {std::pair<std::vector<std::string>, const char*>{{"local"}, "has 2 nodes"},
        {{"slurm", "--launcher-options", "nodes=1"}, "nodes=1; 4 GPUs at 2 a node need 2"},
        {{"slurm", "--launcher-options", "nodes=3"}, "nodes=3"}}) {
    std::vector<std::string> more = {"--launcher"};
    more.insert(more.end(), launcher.begin(), launcher.end());
    const CliResult result = PlanOf(more);
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
  }
}

// It could start no visit: it says so before it walks the space.
TEST(SearchPlans, AreNotOfKubernetes) {
  for (const auto& more :
       {std::vector<std::string>{}, {"--launcher-options", "image=registry/trimtab:1"}}) {
    std::vector<std::string> flags = {"--launcher", "kubernetes"};
    flags.insert(flags.end(), more.begin(), more.end());
    const CliResult result = PlanOf(flags);
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_NE(result.err.find("--launcher kubernetes: a search starts its visits itself"),
              std::string::npos)
        << result.err;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Launchers, SearchPlan,
    testing::Values(
        PlanCase{"Inproc", "4xh100", {"inproc"}, {" profile --config ", "--max-seconds "}},
        PlanCase{
            "Local", "4xh100", {"local"}, {"mpirun -n 4 --oversubscribe ", " profile --config "}},
        PlanCase{"Mpirun",
                 "2x2xh100",
                 {"mpirun", "--launcher-options", "host=a:2,b:2"},
                 {"mpirun -n 4 --host a:2,b:2 --map-by slot ", " profile --config "}},
        PlanCase{
            "Slurm",
            "2x2xh100",
            {"slurm", "--launcher-options", "partition=gpu", "account=me", "time=60"},
            {"sbatch ", "--nodes=2 --ntasks-per-node=2 ", "--gpus-per-node=2 ", "--account=me ",
             "--partition=gpu ", "srun ", "--ntasks=4 ", " profile --config "}}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace trimtab
