// The commands in a page of Markdown.
#pragma once

#include <string>
#include <vector>

namespace trimtab {

/// A fenced block of a page.
struct Block {
  int line = 0;       // of its first line, from 1
  std::string needs;  // "a GPU" of <!-- needs a GPU --> above it; empty if there is none
  std::string text;
};

/// Returns the fenced blocks of a page.
std::vector<Block> BlocksOf(const std::string& page);

/// Returns what a shell would run of a block: lines after "$ " if it has such, else all; comments
/// and continued lines are resolved.
std::vector<std::string> CommandsOf(const Block& block);

/// Returns the code spans of a page that are outside of blocks.
std::vector<std::string> SpansOf(const std::string& page);

/// Returns the words after "trimtab" of a command, split as a shell does; also of one that mpirun
/// starts. `found` is false if the command runs another program.
std::vector<std::string> TrimtabWords(const std::string& command, bool& found);

}  // namespace trimtab
