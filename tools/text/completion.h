// Completion: what shells offer while a command is typed, from the texts of --help.
#pragma once

#include <string>
#include <vector>

#include "tools/text/help_text.h"

namespace trimtab {

/// Returns a script that bash sources. `commands` begins with the program itself.
std::string BashCompletion(const std::vector<CommandText>& commands);

/// Returns an autoloaded function of zsh, a file called _trimtab in its fpath.
std::string ZshCompletion(const std::vector<CommandText>& commands);

}  // namespace trimtab
