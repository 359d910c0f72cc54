#include "engine/runtime/whole_model.h"

#include <memory>

#include "engine/model/gpt_model.h"
#include "engine/runtime/context.h"

namespace trimtab {

WholeModelDeclaration::WholeModelDeclaration(const RunConfig& run, const ParallelContext& parallel,
                                             Device& device)
    : parameters(run.frozen), fp8(run.fp8) {
  const bool in_fp8 = TypesOf(run.layout.numerics).fp8;
  const GptModel model(parameters, ContextOf(run, parallel, device, in_fp8 ? &fp8 : nullptr),
                       WholeModel(run.model));
  parameters.Place({});
}

WholeModelDeclaration DeclareWholeModel(const ModelConfig& model) {
  RunConfig alone;
  alone.model = model;
  const std::unique_ptr<Device> device = MakeMetaDevice(1);
  return {alone, MakeMetaContext(alone.layout, 0), *device};
}

std::vector<const ParameterSpec*> ParameterSpecs(const ParameterStore& parameters) {
  std::vector<const ParameterSpec*> specs;
  for (const Parameter* parameter : parameters.parameters()) {
    specs.push_back(&parameter->spec);
  }
  return specs;
}

}  // namespace trimtab
