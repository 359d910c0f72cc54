// The profile of this machine: measured when it is first needed, then kept in the user's cache.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cost_model/hardware/hardware_profile.h"
#include "tools/cli/output.h"

namespace trimtab {

/// Where the profile of this machine is kept, one file for each processor, number of cores and
/// version of this program: in $XDG_CACHE_HOME/trimtab or ~/.cache/trimtab. Empty where the
/// environment names neither folder.
std::string MachineProfilePath();

/// The same after making its folder, for a file to be written there. Throws StorageError when that
/// fails, UsageError where the environment names no folder.
std::string PrepareMachineProfilePath();

/// The profile kept at `path`, after a line on stderr that says so. nullopt where there is none, or
/// where it is damaged or another machine's, which a line says.
std::optional<HardwareProfile> KeptMachineProfile(const std::string& path);

/// The same, or else what `measure` returns, then kept at `path`; a line says that it is measured.
/// A folder that cannot be written to costs a warning, an empty `path` nothing.
HardwareProfile MachineProfile(const std::string& path,
                               const std::function<HardwareProfile()>& measure);

/// A quick calibration of this machine, its progress on stderr. Warns when the result is rough.
HardwareProfile MeasureMachine(const OutputOptions& output);

}  // namespace trimtab
