// Patterns of parameter names, as RUN.json lists them.
#pragma once

#include <string_view>

namespace trimtab {

/// Returns true if `pattern` matches all of `name`: `*` stands for any characters, dots included,
/// `?` for one, `[abc]`, `[0-9]` and `[!0-9]` for one of a set.
bool MatchesPattern(std::string_view pattern, std::string_view name);

}  // namespace trimtab
