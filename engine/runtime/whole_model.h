// The whole model of a run, declared without memory: the names and shapes of its parameters.
#pragma once

#include <vector>

#include "engine/comm/parallel_context.h"
#include "engine/config/run/run_config.h"
#include "engine/device/device.h"
#include "engine/layers/fp8_state.h"
#include "engine/parameters/parameter.h"

namespace trimtab {

/// The whole model of a run as it would be declared on this rank without a pipeline: its parameters
/// in their order, without memory.
struct WholeModelDeclaration {
  WholeModelDeclaration(const RunConfig& run, const ParallelContext& parallel, Device& device);

  ParameterStore parameters;
  Fp8State fp8;
};

/// The model as one rank alone declares it.
WholeModelDeclaration DeclareWholeModel(const ModelConfig& model);

/// `parameters` must outlive what is returned.
std::vector<const ParameterSpec*> ParameterSpecs(const ParameterStore& parameters);

}  // namespace trimtab
