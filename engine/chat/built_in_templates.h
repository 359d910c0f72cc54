// The chat templates that are built in.
#pragma once

#include <string_view>
#include <vector>

namespace trimtab {

struct BuiltInTemplate {
  const char* name;
  std::vector<const char*> special;  // tokens that it needs
  const char* jinja;
};

const std::vector<BuiltInTemplate>& BuiltInTemplates();
/// Throws UsageError with the nearest name.
const BuiltInTemplate& FindBuiltInTemplate(std::string_view name);

}  // namespace trimtab
