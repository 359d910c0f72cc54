// Name tables: what the values of an enumeration are called in files, flags and reports. An
// enumeration has one table, and its Name and Parse functions read it.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"

namespace trimtab {

/// A value of an enumeration, and its name.
template <typename Enum>
struct Named {
  Enum value;
  std::string_view name;
};

/// Returns the name of `value`, which the table has.
template <typename Enum, size_t kCount>
std::string_view NameIn(const std::array<Named<Enum>, kCount>& table, Enum value) {
  for (const Named<Enum>& row : table) {
    if (row.value == value) return row.name;
  }
  TRIMTAB_ASSERT(false, "no name for the value {}", static_cast<int>(value));
}

/// Returns the value called `name`; nothing where there is none.
template <typename Enum, size_t kCount>
std::optional<Enum> FindNamed(const std::array<Named<Enum>, kCount>& table, std::string_view name) {
  for (const Named<Enum>& row : table) {
    if (row.name == name) return row.value;
  }
  return std::nullopt;
}

/// Returns all names, in the order of the table.
template <typename Enum, size_t kCount>
std::vector<std::string> NamesIn(const std::array<Named<Enum>, kCount>& table) {
  std::vector<std::string> names;
  for (const Named<Enum>& row : table) names.emplace_back(row.name);
  return names;
}

}  // namespace trimtab
