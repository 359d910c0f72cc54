#include "tests/tools/mpirun_fixture.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/base/io/backend_file.h"
#include "tests/tools/processes.h"

namespace trimtab {
namespace {

constexpr char kRun[] = R"({{
  "model": {{"name": "tiny", "vocab_size": 257, "hidden_size": 16, "num_layers": 2, "num_heads": 2,
            "num_kv_heads": 2, "ffn_hidden_size": 32, "max_sequence_length": 16{}}},
  "global_batch": 4, "sequence_length": 8, "steps": 5, "layout": {}, {}
  "optimizer": {{"learning_rate": 0.01, "min_learning_rate": 0.001, "warmup_steps": 1}}
}})";

}  // namespace

std::vector<std::string> JsonLines(const std::string& output) {
  std::vector<std::string> steps;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("{")) continue;
    nlohmann::json json = nlohmann::json::parse(line);
    json.erase("tokens_per_s");
    steps.push_back(json.dump());
  }
  return steps;
}

pid_t ProcessOfRank(int rank, const std::string& word) {
  const std::string variable = fmt::format("OMPI_COMM_WORLD_RANK={}", rank) + '\0';
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string path = entry.path().string();
    if (ReadWholeFile(path + "/cmdline").find(word) == std::string::npos) continue;
    if (ReadWholeFile(path + "/environ").find(variable) == std::string::npos) continue;
    return std::stoi(entry.path().filename().string());
  }
  return 0;
}

void MpirunFixture::SetUp() {
  const std::string reason = WhyNoMpirun();
  if (!reason.empty()) GTEST_SKIP() << reason;
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  folder_ = testing::TempDir() + test.test_suite_name() + "_" + test.name();
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
}

std::string MpirunFixture::WriteRun(const std::string& layout, const std::string& more,
                                    const std::string& more_of_model) {
  const std::string path = folder_ + "/run.json";
  std::ofstream(path) << fmt::format(kRun, more_of_model, layout, more);
  return path;
}

MpirunResult MpirunFixture::RunAlone(const std::string& arguments) {
  const std::string file = testing::TempDir() + "mpirun_fixture_alone";
  const int status = std::system(
      fmt::format("TRIMTAB_MPI_BACKEND='{}' tools/trimtab {} > {} 2>&1",
                  std::filesystem::absolute(FindBackendFile("mpi").path).string(), arguments, file)
          .c_str());
  return {WEXITSTATUS(status), ReadWholeFile(file)};
}

MpirunResult MpirunFixture::RunRanks(int ranks, const std::string& arguments) {
  return RunUnderMpirun(ranks, "tools/trimtab " + arguments);
}

}  // namespace trimtab
