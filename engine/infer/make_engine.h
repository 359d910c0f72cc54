// An engine that serves, ready to take requests.
#pragma once

#include <memory>

#include "engine/infer/engine.h"
#include "engine/infer/serving_config.h"
#include "engine/infer/weight_source.h"

namespace trimtab {

/// The model of `source`, which config.model must be, on its ranks behind a batcher. Throws
/// InfeasibleError (a rule of serving or of layouts), OutOfMemoryError, EnvironmentError,
/// InputError, StorageError.
std::unique_ptr<Engine> MakeEngine(const ServingConfig& config, const WeightSource& source);

}  // namespace trimtab
