// InFile: complaints about a text that a file holds.
#pragma once

#include <string>

#include "engine/base/error.h"

namespace trimtab {

/// Returns what `read` makes of a text of a file. A UsageError of it, which names a flag, becomes
/// an InputError that names `where`, unless that is empty: then the words name the place already.
template <typename Read>
auto InFile(const std::string& where, const Read& read) {
  try {
    return read();
  } catch (const UsageError& error) {
    throw InputError(where.empty() ? error.what() : fmt::format("{}: {}", where, error.what()));
  }
}

}  // namespace trimtab
