// An engine that serves, ready to take requests.
#pragma once

#include <memory>
#include <optional>

#include "engine/infer/engine.h"
#include "engine/infer/serving_config.h"
#include "engine/infer/weight_source.h"

namespace trimtab {

/// The model of `source`, which config.model must be, on its ranks behind a batcher; with
/// config.layout.dp, so many of these, each with the limits and the cache, of which the first
/// config.prefill compute prompts alone; with `draft`, the model of config.draft, on one rank of
/// its own, proposes tokens. With `acceptance`, what is proposed stands with that probability,
/// whatever the model says (BatcherOptions). Throws InfeasibleError (a rule of serving or of
/// layouts), UsageError (replicas of processes, prompts apart on another device than cpu),
/// OutOfMemoryError, EnvironmentError, InputError, StorageError.
std::unique_ptr<Engine> MakeEngine(const ServingConfig& config, const WeightSource& source,
                                   const WeightSource* draft = nullptr,
                                   std::optional<double> acceptance = std::nullopt);

}  // namespace trimtab
