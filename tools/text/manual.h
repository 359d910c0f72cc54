// Manual: commands as man pages and as a page of the documentation, from the texts of --help.
#pragma once

#include <string>
#include <vector>

#include "tools/text/help_text.h"

namespace trimtab {

/// Returns the name of a command's man page without its section: "trimtab-data-build".
std::string ManPageName(const CommandText& command);

/// Returns a man page of section 1 in roff. `program` is its footer: "trimtab 0.1.0".
std::string ManPage(const CommandText& command, const std::string& program);

/// Returns a page in Markdown with the --help of every command.
std::string CommandReference(const std::vector<CommandText>& commands);

}  // namespace trimtab
