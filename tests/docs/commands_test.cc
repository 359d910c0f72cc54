// The README and the pages of docs/: their commands run, and what they say of flags is so.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "engine/base/error.h"
#include "tests/docs/page.h"
#include "tests/tools/run_cli.h"
#include "tests/tools/shell.h"
#include "tools/cli/command.h"

namespace trimtab {
namespace {

namespace fs = std::filesystem;

// Names of what a test does not have. A block without such a mark is run.
const std::set<std::string> kNeeds = {
    "a GPU",
    "a cluster",
    "a container engine",
    "a fresh clone",
    "a running server",
    "a trained model",
    "measured runs",
    "minutes of measuring",
    "minutes of training",
    "seconds of measuring",
    "weights of a published model",
};

std::string ReadText(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<fs::path> Pages() {
  std::vector<fs::path> pages = {"README.md", "CONTRIBUTING.md"};
  for (const fs::directory_entry& entry : fs::directory_iterator("docs")) {
    // The reference is made of the flags themselves.
    if (entry.path().extension() == ".md" && entry.path() != "docs/commands.md") {
      pages.push_back(entry.path());
    }
  }
  std::ranges::sort(pages);
  return pages;
}

/// The commands of a block that run the program, each as the words that follow its name.
std::vector<std::vector<std::string>> RunsOf(const Block& block) {
  std::vector<std::vector<std::string>> runs;
  for (const std::string& command : CommandsOf(block)) {
    bool found = false;
    std::vector<std::string> words = TrimtabWords(command, found);
    if (found) runs.push_back(std::move(words));
  }
  return runs;
}

TEST(Documentation, EveryCommandOfABlockParses) {
  int commands = 0;
  for (const fs::path& page : Pages()) {
    for (const Block& block : BlocksOf(ReadText(page))) {
      EXPECT_TRUE(block.needs.empty() || kNeeds.contains(block.needs))
          << page << ":" << block.line << ": needs '" << block.needs << "'";
      for (const std::vector<std::string>& words : RunsOf(block)) {
        ++commands;
        try {
          CheckCommandLine(words);
        } catch (const UsageError& error) {
          ADD_FAILURE() << page << ":" << block.line << ": " << error.what();
        }
      }
    }
  }
  EXPECT_GT(commands, 40);
}

TEST(Documentation, BlocksWithoutAMarkRun) {
  const fs::path program = fs::absolute("tools");
  int blocks = 0;
  for (const fs::path& page : Pages()) {
    for (const Block& block : BlocksOf(ReadText(page))) {
      if (!block.needs.empty() || RunsOf(block).empty()) continue;
      const fs::path folder = fs::path(testing::TempDir()) / fmt::format("block-{}", blocks++);
      fs::create_directories(folder);
      std::string script = "set -e\n";
      for (const std::string& command : CommandsOf(block)) script += command + "\n";
      std::ofstream(folder / "script") << script;
      const Outcome run = Shell(
          fmt::format("cd '{0}' && PATH='{1}':$PATH XDG_CACHE_HOME='{0}' timeout 300 bash script",
                      folder.string(), program.string()));
      EXPECT_EQ(run.status, 0) << page << ":" << block.line << "\n" << script << run.output;
    }
  }
  EXPECT_GT(blocks, 8);
}

/// The description of the command that a span begins with; null if it names none.
std::vector<const CommandText*> CommandsNamed(const std::vector<CommandText>& commands,
                                              const std::vector<std::string>& words) {
  std::vector<const CommandText*> named;
  for (const CommandText& command : commands) {
    std::string name = "trimtab";
    for (const std::string& word : words) {
      if (word.starts_with("-")) break;
      name += " " + word;
      if (command.name == name || command.name == name + " --for serving") {
        named.push_back(&command);
      }
    }
  }
  return named;
}

TEST(Documentation, CodeSpansNameCommandsAndFlagsThatExist) {
  const std::vector<CommandText> commands = DescribeCommands();
  int spans = 0;
  for (const fs::path& page : Pages()) {
    for (const std::string& span : SpansOf(ReadText(page))) {
      bool found = false;
      const std::vector<std::string> words = TrimtabWords(span, found);
      if (!found || words.empty() || words.front().starts_with("-")) continue;
      ++spans;
      const std::vector<const CommandText*> named = CommandsNamed(commands, words);
      EXPECT_FALSE(named.empty()) << page << ": " << span;
      for (const std::string& word : words) {
        if (!word.starts_with("--") || word == "--help") continue;
        const std::string flag = word.substr(0, word.find('='));
        EXPECT_TRUE(std::ranges::any_of(
            named,
            [&](const CommandText* command) {
              return std::ranges::any_of(command->flags, [&](const FlagText& each) {
                return (each.name + " ").find(flag + " ") != std::string::npos;
              });
            }))
            << page << ": " << span << ": " << flag;
      }
    }
  }
  EXPECT_GT(spans, 20);
}

TEST(Documentation, TheReferenceIsWhatHelpSays) {
  const std::string reference = RunCli({"manual", "--format", "markdown"}).out;
  EXPECT_TRUE(reference == ReadText("docs/commands.md"))
      << "docs/commands.md differs from what --help says;\n"
         "to accept: bazel-bin/tools/trimtab manual --format markdown >docs/commands.md";
}

TEST(Documentation, TheBenchmarksAreThoseOfTheirData) {
  const Outcome page = Shell("python3 tools/scripts/benchmarks.py docs/benchmarks.json");
  EXPECT_EQ(page.status, 0) << page.output;
  EXPECT_TRUE(page.output == ReadText("docs/benchmarks.md"))
      << "to accept: tools/scripts/benchmarks.py docs/benchmarks.json >docs/benchmarks.md";
}

TEST(Page, FindsMarksPromptsAndContinuations) {
  const std::vector<Block> blocks = BlocksOf(
      "<!-- needs a GPU -->\n```\ntrimtab search \\\n    --seq 1 # no\n# nothing\n```\n"
      "<!-- needs a GPU -->\nwords\n\n```\n$ FLAG=1 trimtab models\noutput\n```\n");
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].needs, "a GPU");
  EXPECT_EQ(blocks[0].line, 3);
  EXPECT_EQ(RunsOf(blocks[0]), (std::vector<std::vector<std::string>>{{"search", "--seq", "1"}}));
  EXPECT_EQ(blocks[1].needs, "");
  EXPECT_EQ(CommandsOf(blocks[1]), (std::vector<std::string>{"FLAG=1 trimtab models"}));
  bool found = false;
  EXPECT_EQ(TrimtabWords("mpirun -n 2 trimtab train --model \"a b\" | head", found),
            (std::vector<std::string>{"train", "--model", "a b"}));
  EXPECT_TRUE(found);
  EXPECT_EQ(SpansOf("a `b` c\n```\n`d`\n```\n"), std::vector<std::string>{"b"});
}

}  // namespace
}  // namespace trimtab
