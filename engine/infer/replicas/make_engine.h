// An engine that serves, ready to take requests.
#pragma once

#include <memory>
#include <optional>

#include "engine/grammar/token_grammar.h"
#include "engine/infer/api/engine.h"
#include "engine/infer/serving_config.h"
#include "engine/runtime/weights/weight_source.h"

namespace trimtab {

/// The configuration resolved, as the functions below serve it. Throws InfeasibleError (a rule of
/// serving or of layouts), UsageError (a launcher that started another number of processes).
ServingConfig PrepareServing(const ServingConfig& config);

/// The model of `source`, which config.model must be, on its ranks behind a scheduler; with
/// config.layout.dp, so many of these, each with the limits and the cache, of which the first
/// config.prefill compute prompts alone; with `draft`, the model of config.draft, on one rank of
/// its own, proposes tokens. With `acceptance`, what is proposed stands with that probability,
/// whatever the model says (SchedulerOptions). In the first of the processes that a launcher
/// started. `grammars` compiles those of requests; without it, requests that have one end with an
/// error. Throws as PrepareServing; OutOfMemoryError, EnvironmentError, InputError, StorageError.
std::unique_ptr<Engine> MakeEngine(const ServingConfig& config, const WeightSource& source,
                                   const WeightSource* draft = nullptr,
                                   std::optional<double> acceptance = std::nullopt,
                                   std::shared_ptr<GrammarCompiler> grammars = nullptr);

/// What the other ones do meanwhile, with the same arguments: their part, until that engine is no
/// more. Throws as that.
void FollowEngine(const ServingConfig& config, const WeightSource& source,
                  const WeightSource* draft = nullptr,
                  std::optional<double> acceptance = std::nullopt,
                  std::shared_ptr<GrammarCompiler> grammars = nullptr);

}  // namespace trimtab
