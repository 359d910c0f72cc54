// What a micro batch through a model reports on the meta device.
#pragma once

#include "engine/config/run/run_config.h"
#include "engine/device/record.h"

namespace trimtab {

/// Takes one micro batch of one rank of `run` through its model; each pass reports to its recorder,
/// or to nobody where that is nullptr.
void RecordModel(const RunConfig& run, Recorder* forward, Recorder* backward);

}  // namespace trimtab
