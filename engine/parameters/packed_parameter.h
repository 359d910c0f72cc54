// Parameters as serving multiplies by them.
#pragma once

#include "engine/parameters/parameter.h"

namespace trimtab {

/// Uninitialised memory in `format` for what rows are multiplied by: `packed`, and where part of
/// the parameter is absorbed `packed_absorbed`. spec.multiplied above 0.
void AllocatePacked(Device& device, WeightFormat format, Parameter& parameter);

}  // namespace trimtab
