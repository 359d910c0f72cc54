#include "engine/base/log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "engine/base/error.h"

namespace trimtab {
namespace {

TEST(Log, CopiesLinesOfItsLevelToTheFile) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/log.txt";
  ConfigureLog(LogLevel::kInfo, path);
  LogDebug("not {}", "shown");
  LogInfo("rank {} starts", 3);
  LogWarning("slow");
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_NE(text.str().find("rank 3 starts"), std::string::npos);
  EXPECT_NE(text.str().find("slow"), std::string::npos);
  EXPECT_EQ(text.str().find("not shown"), std::string::npos);
}

TEST(Log, RefusesAFileItCannotOpen) {
  try {
    ConfigureLog(LogLevel::kInfo, "/dev/null/log.txt");
    FAIL() << "nothing was thrown";
  } catch (const StorageError& error) {
    EXPECT_NE(std::string(error.what()).find("--log-file /dev/null/log.txt"), std::string::npos);
  }
}

}  // namespace
}  // namespace trimtab
