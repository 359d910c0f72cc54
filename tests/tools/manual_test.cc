#include "tools/text/manual.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/run_cli.h"

namespace trimtab {
namespace {

TEST(ManPage, EscapesWhatRoffWouldRead) {
  const std::string page = ManPage({.name = "trimtab a b",
                                    .summary = "a\\b",
                                    .usage = "[FLAGS]",
                                    .flags = {{.name = "--x-y N",
                                               .group = "Group",
                                               .brief = "a brief",
                                               .more = "And more.",
                                               .shown_default = "1",
                                               .choices = {"1", "2"}}},
                                    .footer = ".hidden\n"},
                                   "trimtab 1");
  EXPECT_NE(page.find(".SH NAME\ntrimtab\\-a\\-b \\- a\\eb\n"), std::string::npos) << page;
  EXPECT_NE(page.find(".SS Group\n.TP\n.B \\-\\-x\\-y N\na brief [1]. And more. One of: 1, 2.\n"),
            std::string::npos)
      << page;
  EXPECT_NE(page.find("\n\\&.hidden\n"), std::string::npos) << page;
}

TEST(ManPage, IsNamedAfterItsCommand) {
  EXPECT_EQ(ManPageName({.name = "trimtab"}), "trimtab");
  EXPECT_EQ(ManPageName({.name = "trimtab data build"}), "trimtab-data-build");
  EXPECT_EQ(ManPageName({.name = "trimtab search --for serving"}), "trimtab-search-for-serving");
}

TEST(Manual, WritesAPageOfEachCommand) {
  const std::string folder = ScratchFolder() + "/pages";
  EXPECT_EQ(RunCli({"manual", "--format", "man", "--out", folder}).exit_code, 0);
  for (const char* name : {"trimtab", "trimtab-search", "trimtab-search-for-serving",
                           "trimtab-data", "trimtab-data-info", "trimtab-manual"}) {
    EXPECT_TRUE(std::filesystem::exists(folder + "/" + name + ".1")) << name;
  }
}

TEST(Manual, RefusesAFolderWherePagesAreNotWritten) {
  EXPECT_EQ(RunCli({"manual"}).err, "trimtab: --format man: --out is required\n");
  const CliResult bash = RunCli({"manual", "--format", "bash", "--out", "x"});
  EXPECT_EQ(bash.exit_code, 2);
  EXPECT_EQ(bash.err, "trimtab: --format bash: prints to stdout; --out is for man\n");
}

}  // namespace
}  // namespace trimtab
