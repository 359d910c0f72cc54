#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tests/tools/run_cli.h"
#include "tools/text/help_text.h"
#include "tools/text/wrap.h"

namespace trimtab {
namespace {

using Words = std::vector<std::string>;

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Words With(Words words, const std::string& word) {
  words.push_back(word);
  return words;
}

/// The names under "Commands:" of a help text.
std::vector<std::string> CommandsIn(const std::string& help) {
  std::vector<std::string> names;
  bool listed = false;
  for (const std::string& line : LinesOf(help)) {
    if (listed && !line.starts_with("  ")) break;
    if (listed) names.push_back(line.substr(2, line.find(' ', 2) - 2));
    listed = listed || line == "Commands:";
  }
  return names;
}

/// Every command that help leads to from `words`, and those that have other flags for serving.
void Collect(const Words& words, std::vector<Words>& commands) {
  commands.push_back(words);
  for (const std::string& name : CommandsIn(RunCli(With(words, "--help")).out)) {
    Collect(With(words, name), commands);
    if (name == "search" || name == "estimate") commands.push_back({name, "--for", "serving"});
  }
}

class Help : public testing::Test {
 protected:
  Help() { Collect({}, commands_); }

  static std::string Text(const Words& words, const std::string& flag) {
    const CliResult result = RunCli(With(words, flag));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return result.out;
  }

  std::vector<Words> commands_;
};

TEST_F(Help, LeadsToEveryCommand) {
  std::set<std::string> names;
  for (const Words& words : commands_) {
    if (!words.empty()) names.insert(words.back());
  }
  for (const char* name : {"search", "train", "serve", "build", "info", "doctor", "serving"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST_F(Help, ShortHelpHasTenFlagsAtMostAndNarrowLines) {
  for (const Words& words : commands_) {
    const std::string text = Text(words, "-h");
    int flags = 0;
    for (const std::string& line : LinesOf(text)) {
      EXPECT_LE(DisplayWidth(line), kShortHelpColumns) << line;
      flags += line.starts_with("  -");
    }
    EXPECT_LE(flags, 10) << text;
  }
}

TEST_F(Help, LongHelpKeepsToItsWidthAndSaysWhatEachFlagIs) {
  for (const Words& words : commands_) {
    const std::vector<std::string> lines = LinesOf(Text(words, "--help"));
    for (size_t i = 0; i < lines.size(); ++i) {
      EXPECT_LE(DisplayWidth(lines[i]), kMostColumns) << lines[i];
      if (!lines[i].starts_with("  -")) continue;
      const bool beside = lines[i].find("  ", 3) != std::string::npos;
      EXPECT_TRUE(beside || lines.at(i + 1).starts_with("      ")) << lines[i];
    }
  }
}

// Flags that -h leaves out are found under a heading that fits the command.
TEST_F(Help, LongHelpOfSearchIsInGroups) {
  for (const Words& words : {Words{"search"}, Words{"search", "--for", "serving"}}) {
    const std::string text = Text(words, "--help");
    size_t at = 0;
    for (const char* group : {"Problem:", "Space:", "Objective:", "Measuring:", "Output:"}) {
      const size_t found = text.find(std::string("\n\n") + group + "\n", at);
      EXPECT_NE(found, std::string::npos) << group << text;
      at = found;
    }
  }
}

TEST_F(Help, EveryFlagOfShortHelpIsInLongHelp) {
  for (const Words& words : commands_) {
    const std::string text = Text(words, "--help");
    for (const std::string& line : LinesOf(Text(words, "-h"))) {
      if (!line.starts_with("  --")) continue;
      EXPECT_TRUE(text.find(line.substr(0, line.find(' ', 2)) + " ") != std::string::npos) << line;
    }
  }
}

TEST_F(Help, NamesTheUsualPlaceholdersAndDefaults) {
  const std::string text = Text({"train"}, "--help");
  EXPECT_NE(text.find("--log-every N "), std::string::npos) << text;
  EXPECT_NE(text.find("print every N steps [1]"), std::string::npos) << text;
  EXPECT_NE(Text({"report"}, "-h").find("study of a search (required)"), std::string::npos);
  EXPECT_NE(Text({"models"}, "-h").find("Usage: trimtab models [MODEL] [FLAGS]"),
            std::string::npos);
}

TEST(Wrap, BreaksAtBlanks) {
  EXPECT_EQ(WrapWords("one two  three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(WrapWords("tp=8,mbs=4,a", 8), (std::vector<std::string>{"tp=8,", "mbs=4,a"}));
  EXPECT_EQ(WrapWords("unbreakable", 6), (std::vector<std::string>{"unbrea", "kable"}));
  EXPECT_EQ(WrapWords("", 4), (std::vector<std::string>{""}));
  EXPECT_EQ(DisplayWidth("é·"), 2u);
  EXPECT_EQ(DisplayWidth("\x1b[1mbold\x1b[0m"), 4u);
}

TEST(Wrap, GoesOnUnderTheLastColumn) {
  EXPECT_EQ(WrapColumns("short\n  key  a meaning that is long\nend\n", 20),
            "short\n  key  a meaning\n       that is long\nend\n");
  EXPECT_EQ(WrapColumns("one column of words only", 12), "one column\n  of words\n  only");
}

}  // namespace
}  // namespace trimtab
