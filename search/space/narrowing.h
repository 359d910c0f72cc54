// Narrowing: what a user leaves of the space, as in --fix tp=8.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/config/layout/parallel_config.h"

namespace trimtab {

/// The keys that a narrowing may name: the dimensions of a workload.
class NarrowingKeys {
 public:
  virtual ~NarrowingKeys() = default;
  virtual std::vector<std::string> names() const = 0;
  /// Returns the value as a candidate prints it. Throws UsageError naming `flag` for a value that
  /// the key, one of the names, cannot have.
  virtual std::string Canonical(const std::string& key, const std::string& text,
                                const std::string& flag) const = 0;
};
/// Keys of layouts that dimensions of the space of training bind.
const NarrowingKeys& TrainingKeys();

/// A key, and the values that candidates may have of it, or may not.
struct Narrowing {
  std::string key;
  bool forbidden = false;           // these are left out, and not all others
  std::vector<std::string> values;  // as a layout prints them

  bool Allows(const ParallelConfig& layout) const;
  /// `value` as a candidate prints it.
  bool Allows(const std::string& value) const;
  bool operator==(const Narrowing&) const = default;
};

/// Reads "tp=4,8,pp=2", cut at its commas: what has no key goes on with the values before it.
/// Throws UsageError naming `flag` for a key that no dimension of the space binds, a value that the
/// key cannot have, and a key that comes twice.
std::vector<Narrowing> ParseNarrowings(const std::vector<std::string>& words,
                                       const std::string& flag, bool forbidden,
                                       const NarrowingKeys& keys = TrainingKeys());
/// Reads the values of --fix, --allow and --forbid. Throws UsageError, also for several values of a
/// key that is fixed.
std::vector<Narrowing> ParseAllNarrowings(const std::vector<std::string>& fixed,
                                          const std::vector<std::string>& allowed,
                                          const std::vector<std::string>& forbidden,
                                          const NarrowingKeys& keys = TrainingKeys());

/// Depth of the row that binds the key, counted from the first. The key is one of a narrowing.
size_t RowThatBinds(const std::string& key);

/// [{"key": "tp", "allow": ["8"]}, ...]; what is left out stands under "forbid".
nlohmann::json ToJson(const std::vector<Narrowing>& narrowings);
/// Reads one of them, strictly. Throws InputError naming `where`.
Narrowing NarrowingFromJson(const nlohmann::json& json, const std::string& where,
                            const NarrowingKeys& keys = TrainingKeys());

}  // namespace trimtab
