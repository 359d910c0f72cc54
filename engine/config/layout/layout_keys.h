// The keys of a layout: one table, from which --layout is parsed and printed, JSON is read and
// written, and help is made. A new member of ParallelConfig needs one row here.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "engine/config/layout/parallel_config.h"

namespace trimtab {

class StrictObject;

/// One key. `what` names it in errors: "layout: tp".
struct LayoutKey {
  const char* name;
  const char* meaning;      // for help
  bool always_printed;      // also when it has its default
  std::string (*values)();  // for help: "0..3", "fp32 | bf16"
  std::string (*print)(const ParallelConfig& layout);
  /// Inverse of print. Throws UsageError.
  void (*parse)(const std::string& text, const std::string& what, ParallelConfig& layout);
  /// Reads the value if the object has one. Throws InputError.
  void (*read)(StrictObject& object, const char* name, ParallelConfig& layout);
  nlohmann::json (*write)(const ParallelConfig& layout);
};

/// Every key, in the order in which a layout is printed. The names are stored in studies, so they
/// are never changed.
std::span<const LayoutKey> LayoutKeys();

/// Returns the key called `name`, which there is.
const LayoutKey& LayoutKeyCalled(std::string_view name);

}  // namespace trimtab
