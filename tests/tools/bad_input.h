// What a user can get wrong: cases of a command line, and the files that they name.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trimtab {

struct BadInput {
  const char* name;
  std::vector<std::string> arguments;  // "@x" is the file or folder x of the scratch folder
  int exit_code;
  const char* says;
};

class BadInputTest : public testing::TestWithParam<BadInput> {
 protected:
  static void SetUpTestSuite();

  /// The case ends with its exit code, one line on stderr that says its words, and no output.
  void ExpectRefused() const;

  static inline std::string folder_;
};

}  // namespace trimtab
