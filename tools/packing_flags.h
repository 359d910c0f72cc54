// The flags that say how sequences hold documents, shared by search, estimate, profile and train.
#pragma once

#include <string>
#include <vector>

#include "engine/config/packing_config.h"
#include "tools/flags.h"

namespace trimtab {

/// --mask and --document-lengths.
struct PackingFlags {
  std::string mask;
  std::vector<std::string> lengths;

  void Declare(FlagSet& flags);
  /// Changes what was given. Throws UsageError for a length that is none.
  void Apply(PackingConfig& packing) const;
};

}  // namespace trimtab
