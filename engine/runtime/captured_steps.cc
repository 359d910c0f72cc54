#include "engine/runtime/captured_steps.h"

#include "engine/base/log.h"
#include "engine/device/tensor.h"

namespace trimtab {

bool CapturedSteps::TrueOnAll(bool value) const {
  if (parallel_.layout.world_size() == 1) return value;
  const auto memory = MakeCpuDevice(1);
  Tensor refusals = Tensor::Empty(*memory, {1}, DType::kI32, MemoryTag::kCommunication);
  refusals.i32()[0] = value ? 0 : 1;
  parallel_.host->AllReduce(refusals, ReduceOp::kMax);
  return refusals.i32()[0] == 0;
}

void CapturedSteps::BeginStep(bool possible, bool wanted, std::optional<bool> agreed) {
  capturing_ = possible && !given_up_ && (agreed ? *agreed : TrueOnAll(wanted));
  if (!capturing_) graphs_.clear();  // their memory is needed
}

void CapturedSteps::Run(int part, const std::function<void()>& work) {
  if (!capturing_) return work();
  std::unique_ptr<CapturedWork>& graph = graphs_[part];
  if (graph == nullptr) {
    try {
      graph = device_.Capture(work);
    } catch (const OutOfMemoryError& error) {
      LogWarning("goes on without captured graphs, so slower: {}", error.what());
    }
    if (!TrueOnAll(graph != nullptr)) {
      given_up_ = true;
      capturing_ = false;
      graphs_.clear();
      return work();
    }
  }
  graph->Replay();
}

}  // namespace trimtab
