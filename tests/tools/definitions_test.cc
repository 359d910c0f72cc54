// A program takes of an archive what it needs, and the first definition of a function that two
// archives have: the other one is never missed, until the order of the archives changes. Here all
// of them are linked whole, so a second definition is an error of the linker's.

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/tools/shell.h"

namespace trimtab {
namespace {

/// Links all of the archives that `listing` names.
Outcome LinkWhole(const std::string& listing) {
  const std::string linked = ::testing::TempDir() + "linked.o";
  return Shell("ld --relocatable --strip-all --output=" + linked + " --whole-archive @" + listing);
}

TEST(Definitions, TheCommandHasOneOfEachFunction) {
  const Outcome linked = LinkWhole("tests/tools/command_archives.txt");
  EXPECT_EQ(linked.status, 0) << linked.output;
}

TEST(Definitions, ASecondOneIsFound) {
  const std::string folder = ::testing::TempDir();
  std::ofstream listing(folder + "archives.txt");
  for (const std::string name : {"one", "other"}) {
    const std::string base = folder + name;
    const Outcome made =
        Shell("printf '.globl twice, " + name + "\\ntwice:\\n" + name + ":\\n' | as -o " + base +
              ".o && ar crs " + base + ".a " + base + ".o");
    ASSERT_EQ(made.status, 0) << made.output;
    listing << base << ".a\n";
  }
  listing.close();
  const Outcome linked = LinkWhole(folder + "archives.txt");
  EXPECT_NE(linked.status, 0);
  EXPECT_NE(linked.output.find("multiple definition of `twice'"), std::string::npos)
      << linked.output;
}

}  // namespace
}  // namespace trimtab
