// Layout words: a layout as one would say it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/base/device_kind.h"

namespace trimtab {

/// "2-way tensor parallel with sequence parallel, micro batch 4, fp32"; the layout itself when it
/// is not one that this version knows.
std::string LayoutWords(const std::string& layout);

/// "2 ranks × 1 thread", or "8 GPUs".
std::string PlaceWords(DeviceKind device, int64_t ranks, int64_t threads);

/// Returns the device of the cluster of a report's problem.
DeviceKind DeviceOf(const nlohmann::json& problem);

}  // namespace trimtab
