#include "tests/docs/page.h"

#include <algorithm>
#include <regex>
#include <sstream>

namespace trimtab {
namespace {

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// The words of a command up to a pipe, a redirection or a comment.
std::vector<std::string> WordsOf(const std::string& command) {
  std::vector<std::string> words;
  std::string word;
  bool open = false;  // a word was begun, which may be empty
  char quote = 0;
  for (const char c : command) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
      open = true;
    } else if (c == ' ') {
      if (open) words.push_back(word);
      word.clear();
      open = false;
    } else if (c == '|' || c == '>' || c == '<' || c == ';' || c == '&' || (c == '#' && !open)) {
      break;
    } else {
      word += c;
      open = true;
    }
  }
  if (open) words.push_back(word);
  return words;
}

}  // namespace

std::vector<Block> BlocksOf(const std::string& page) {
  std::vector<Block> blocks;
  std::string needs;
  bool fenced = false;
  int number = 0;
  const std::regex mark("<!-- needs (.*) -->");
  for (const std::string& line : LinesOf(page)) {
    ++number;
    if (line.starts_with("```")) {
      fenced = !fenced;
      if (fenced) blocks.push_back({.line = number + 1, .needs = needs, .text = ""});
      needs.clear();
    } else if (fenced) {
      blocks.back().text += line + "\n";
    } else if (std::smatch match; std::regex_match(line, match, mark)) {
      needs = match[1];
    } else if (!line.empty()) {
      needs.clear();
    }
  }
  return blocks;
}

std::vector<std::string> CommandsOf(const Block& block) {
  std::vector<std::string> commands;
  const std::vector<std::string> lines = LinesOf(block.text);
  const bool prompts =
      std::ranges::any_of(lines, [](const std::string& line) { return line.starts_with("$ "); });
  bool continued = false;
  for (std::string line : lines) {
    if (prompts && !continued) {
      if (!line.starts_with("$ ")) continue;
      line = line.substr(2);
    }
    if (continued) {
      commands.back() += " " + line;
    } else if (!line.empty() && !line.starts_with("#")) {
      commands.push_back(line);
    } else {
      continue;
    }
    continued = commands.back().ends_with("\\");
    if (continued) commands.back().pop_back();
  }
  return commands;
}

std::vector<std::string> SpansOf(const std::string& page) {
  std::vector<std::string> spans;
  std::string prose;
  bool fenced = false;
  for (const std::string& line : LinesOf(page)) {
    if (line.starts_with("```")) {
      fenced = !fenced;
    } else if (!fenced) {
      prose += line + " ";
    }
  }
  const std::regex span("`([^`]+)`");
  for (std::sregex_iterator each(prose.begin(), prose.end(), span), end; each != end; ++each) {
    spans.push_back((*each)[1]);
  }
  return spans;
}

std::vector<std::string> TrimtabWords(const std::string& command, bool& found) {
  std::vector<std::string> words = WordsOf(command);
  auto word = words.begin();
  if (word != words.end() && *word == "mpirun") {
    word = std::ranges::find(words, std::string("trimtab"));
  }
  found = word != words.end() && (*word == "trimtab" || *word == "./trimtab");
  if (!found) return {};
  return {word + 1, words.end()};
}

}  // namespace trimtab
