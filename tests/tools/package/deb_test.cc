// The Debian package: it holds what it should, and its dependencies are all that it needs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/tools/shell.h"

namespace trimtab {
namespace {

namespace fs = std::filesystem;

constexpr char kPackage[] = "tools/trimtab.deb";

class Deb : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    root_ = fs::path(testing::TempDir()) / "root";
    fs::remove_all(root_);
    const Outcome filled = Shell(
        fmt::format("python3 tests/tools/package/clean_root.py {} '{}'", kPackage, root_.string()));
    ASSERT_EQ(filled.status, 0) << filled.output;
    const Outcome installed = Shell(fmt::format(
        "PATH=$PATH:/usr/sbin:/sbin dpkg --root='{}' --force-not-root --log=/dev/null --install {}",
        root_.string(), kPackage));
    ASSERT_EQ(installed.status, 0) << installed.output;
  }

  static fs::path root_;
};
fs::path Deb::root_;

TEST_F(Deb, HoldsProgramPagesAndCompletion) {
  for (const char* name :
       {"usr/bin/trimtab", "usr/share/man/man1/trimtab.1.gz",
        "usr/share/man/man1/trimtab-search.1.gz", "usr/share/man/man1/trimtab-data-build.1.gz",
        "usr/share/bash-completion/completions/trimtab",
        "usr/share/zsh/vendor-completions/_trimtab", "usr/share/doc/trimtab/copyright"}) {
    EXPECT_TRUE(fs::exists(root_ / name)) << name;
  }
  const Outcome version = Shell(fmt::format("dpkg-deb -f {} Version", kPackage));
  EXPECT_EQ(version.output, "0.1.0\n");
}

TEST_F(Deb, SearchesInACleanRoot) {
  const std::string inside =
      fmt::format("env -i PATH=/usr/bin:/usr/sbin chroot '{}' /usr/bin/trimtab", root_.string());
  const Outcome started = Shell(inside + " --version");
  if (started.output.find("Operation not permitted") != std::string::npos) {
    GTEST_SKIP() << "chroot is not permitted";
  }
  ASSERT_EQ(started.status, 0) << started.output;
  EXPECT_TRUE(started.output.starts_with("trimtab 0.1.0\n")) << started.output;
  const Outcome found =
      Shell(inside +
            " search --model gpt2-124m --cluster 8xh100 --gbs 64 --seq 1024 --prove 0"
            " --study /tmp/study.db");
  EXPECT_EQ(found.status, 0) << found.output;
  EXPECT_NE(found.output.find("recommended: "), std::string::npos) << found.output;
}

TEST_F(Deb, BashCompletesCommandsFlagsAndValues) {
  const auto completed = [](const std::string& words, int at) {
    return Shell(fmt::format("bash -c '. \"{}\"; COMP_WORDS=({}); COMP_CWORD={}; _trimtab; "
                             "printf \"%s \" \"${{COMPREPLY[@]}}\"'",
                             (root_ / "usr/share/bash-completion/completions/trimtab").string(),
                             words, at))
        .output;
  };
  EXPECT_EQ(completed("trimtab sea", 1), "search ");
  EXPECT_EQ(completed("trimtab data b", 2), "build ");
  EXPECT_EQ(completed("trimtab search --prov", 2), "--prove ");
  EXPECT_EQ(completed("trimtab search --conc", 2), "--concurrency ");
  EXPECT_EQ(completed("trimtab search --objective mem", 3), "memory ");
}

TEST_F(Deb, ZshReadsTheCompletion) {
  if (Shell("zsh --version").status != 0) GTEST_SKIP() << "no zsh on PATH";
  const Outcome read = Shell(
      fmt::format("zsh -n '{}'", (root_ / "usr/share/zsh/vendor-completions/_trimtab").string()));
  EXPECT_EQ(read.status, 0) << read.output;
  EXPECT_EQ(read.output, "");
}

TEST_F(Deb, ManPagesAreRoff) {
  if (Shell("man --version").status != 0) GTEST_SKIP() << "no man on PATH";
  const Outcome page =
      Shell(fmt::format("MANWIDTH=100 man --warnings -E UTF-8 -l '{}'",
                        (root_ / "usr/share/man/man1/trimtab-search.1.gz").string()));
  EXPECT_EQ(page.output.find("warning:"), std::string::npos) << page.output;
  EXPECT_NE(page.output.find("--cluster CLUSTER"), std::string::npos) << page.output;
}

TEST(Container, HoldsADockerfileAndThePackage) {
  EXPECT_EQ(Shell("tar -tf tools/trimtab-container.tar").output, "Dockerfile\ntrimtab.deb\n");
}

}  // namespace
}  // namespace trimtab
