// Narrowing: what a user leaves of the space, as in --fix tp=8.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/config/parallel_config.h"

namespace trimtab {

struct LayoutKey;

/// A key of layouts, and the values that candidates may have of it, or may not.
struct Narrowing {
  std::string key;
  bool forbidden = false;           // these are left out, and not all others
  std::vector<std::string> values;  // as a layout prints them

  bool Allows(const ParallelConfig& layout) const;
  bool operator==(const Narrowing&) const = default;
};

/// Reads "tp=4,8,pp=2", cut at its commas: what has no key goes on with the values before it.
/// Throws UsageError naming `flag` for a key that no dimension of the space binds, a value that the
/// key cannot have, and a key that comes twice.
std::vector<Narrowing> ParseNarrowings(const std::vector<std::string>& words,
                                       const std::string& flag, bool forbidden);

/// Depth of the row that binds the key, counted from the first. The key is one of a narrowing.
size_t RowThatBinds(const std::string& key);

/// [{"key": "tp", "allow": ["8"]}, ...]; what is left out stands under "forbid".
nlohmann::json ToJson(const std::vector<Narrowing>& narrowings);
/// Reads one of them, strictly. Throws InputError naming `where`.
Narrowing NarrowingFromJson(const nlohmann::json& json, const std::string& where);

}  // namespace trimtab
