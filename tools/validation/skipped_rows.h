// What `validate` says of rows that it left out.
#pragma once

#include <span>
#include <string>
#include <utility>

namespace trimtab {

/// A table of reasons: how many rows each left out, and which, the first few by name. `skipped`:
/// (id, reason). Empty where nothing was left out.
std::string SkippedRowsText(std::span<const std::pair<std::string, std::string>> skipped,
                            bool bold);

}  // namespace trimtab
