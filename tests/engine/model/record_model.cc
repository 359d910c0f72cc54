#include "tests/engine/model/record_model.h"

#include "engine/model/gpt_model.h"

namespace trimtab {

void RecordModel(const RunConfig& run, Recorder* forward, Recorder* backward) {
  const std::unique_ptr<Device> device = MakeMetaDevice(1);
  const ParallelContext parallel = MakeMetaContext(run.layout, 0);
  const TrainingTypes types = TypesOf(run.layout.numerics);
  Fp8State fp8(run.fp8);
  ParameterStore store;
  const GptModel model(store,
                       LayerContext{.device = *device,
                                    .parallel = parallel,
                                    .model = run.model,
                                    .micro_batch = run.layout.micro_batch,
                                    .sequence = run.sequence_length,
                                    .types = types,
                                    .fp8 = types.fp8 ? &fp8 : nullptr},
                       WholeModel(run.model));
  store.Allocate(*device, types.weights, types.gradients);
  if (types.fp8) fp8.Allocate(*device);
  Tensor scalar = Tensor::Empty(*device, {1}, DType::kF32, MemoryTag::kWorkspace);
  MicroBatchState state;
  device->set_recorder(forward);
  model.Forward(NewBatches(model.context(), model.chunk(), 1).front(), scalar, scalar, state);
  device->set_recorder(backward);
  model.Backward(state, /*dy=*/{}, /*accumulate=*/false);
  device->set_recorder(nullptr);
}

}  // namespace trimtab
