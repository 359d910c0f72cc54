// tools/scripts/lint_words.py finds links that lead nowhere, wide lines, long READMEs and comments
// that begin with a word that hides the subject.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/tools/shell.h"

namespace trimtab {
namespace {

namespace fs = std::filesystem;

class LintWords : public testing::Test {
 protected:
  LintWords() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }

  /// Returns the faults that the script prints.
  std::string Faults() const {
    return Shell(fmt::format("python3 tools/scripts/lint_words.py '{}'", folder_.string())).output;
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / "words";
};

TEST_F(LintWords, LinksLeadToFilesAndHeadings) {
  Write("page.md", "# A `b` c, d\n[good](page.md#a-b-c-d) [also](#a-b-c-d) [far](https://a.b/c)\n");
  EXPECT_EQ(Faults(), "\n");
  Write("page.md", "# A\n[one](none.md)\n`[code](none.md)`\n[two](#b)\n\n[r]: gone.md\n");
  EXPECT_EQ(Faults(),
            "page.md:2: the link none.md leads nowhere\n"
            "page.md:4: page.md has no heading for #b\n"
            "page.md:6: the link gone.md leads nowhere\n");
}

TEST_F(LintWords, ProseIsNarrowAndTablesMayBeWide) {
  const std::string wide(101, 'x');
  Write("page.md", "| " + wide + " |\n```\n" + wide + "\n```\n");
  EXPECT_EQ(Faults(), "\n");
  Write("page.md", wide + "\n");
  EXPECT_EQ(Faults(), "page.md:1: more than 100 columns\n");
}

TEST_F(LintWords, ReadmesAreShort) {
  std::string lines;
  for (int i = 0; i < 101; ++i) lines += "\n";
  Write("folder/README.md", lines);
  Write("folder/page.md", lines);
  EXPECT_EQ(Faults(), "folder/README.md: 101 lines, 100 allowed\n");
}

TEST_F(LintWords, ExceptionsThatAreNotNeededAreFaults) {
  const Outcome listed = Shell(
      "cd tools/scripts && python3 -B -c 'import lint_words; "
      "print(\" \".join(sorted(lint_words.LONG_READMES)[:1]), end=\"\")'");
  ASSERT_EQ(listed.status, 0) << listed.output;
  if (listed.output.empty()) GTEST_SKIP() << "no exception is left";
  Write(listed.output, "# Short\n");
  const std::string faults = Faults();
  EXPECT_NE(faults.find(listed.output + ": 1 lines; take it out of LONG_READMES\n"),
            std::string::npos)
      << faults;
}

TEST_F(LintWords, CommentsBeginWithTheirSubject) {
  Write("new/a.h", "// Returns a.\n// Of b.\n\n/// True if c.\nint c();\n");
  EXPECT_EQ(Faults(), "\n");
  Write("new/a.h", "/// Whether c.\nint c();\n");
  EXPECT_EQ(Faults(),
            "new: 1 comments begin with a word that hides the subject, 0 allowed; the last of "
            "them: new/a.h:1: begins with 'Whether'\n");
}

}  // namespace
}  // namespace trimtab
