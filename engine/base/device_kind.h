// DeviceKind: what computes.
#pragma once

#include <array>
#include <string_view>

#include "engine/base/name_table.h"

namespace trimtab {

enum class DeviceKind { kCpu, kMeta, kCuda };

/// The devices that a run can ask for, as files and flags call them: meta computes nothing.
inline constexpr std::array<Named<DeviceKind>, 2> kDeviceNames = {
    {{DeviceKind::kCpu, "cpu"}, {DeviceKind::kCuda, "cuda"}}};

/// Returns "cpu", "cuda" or "meta".
inline std::string_view Name(DeviceKind kind) {
  return kind == DeviceKind::kMeta ? "meta" : NameIn(kDeviceNames, kind);
}

}  // namespace trimtab
