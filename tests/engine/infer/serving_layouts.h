// The layouts on up to four ranks, for tests of what holds in all of them.
#pragma once

#include <vector>

#include "engine/infer/serving_config.h"

namespace trimtab {

/// `config` in every layout on up to four ranks, those of all replicas together, in which its model
/// can be served; resolved.
std::vector<ServingConfig> InEveryLayout(ServingConfig config);

}  // namespace trimtab
