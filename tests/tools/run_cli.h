// Runs the command in this process and captures what it prints. For tests.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace trimtab {

struct CliResult {
  int exit_code = -1;
  std::string out;
  std::string err;
};

/// `arguments` follow "trimtab".
CliResult RunCli(const std::vector<std::string>& arguments);

/// Runs with --json, expects success, and parses stdout.
nlohmann::json JsonOf(std::vector<std::string> arguments);

/// A run of a very small model, as RUN.json.
extern const char* const kTinyRun;

/// Builds a small dataset at `prefix`.
void MakeDataset(const std::string& prefix);

}  // namespace trimtab
