// Parts that report.json is made of.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "search/report.h"

namespace trimtab {

template <typename T>
nlohmann::json OrNull(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

/// Describes how the race went and ended.
nlohmann::json RaceJson(const SearchResult& result);
/// Describes the machine's speed during the race; null where no visit read the probe.
nlohmann::json MachineJson(const SearchResult& result);

}  // namespace trimtab
