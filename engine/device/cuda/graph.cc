#include "engine/device/cuda/graph.h"

#include "engine/base/error.h"
#include "engine/device/cuda/check.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/stream.h"

namespace trimtab {
namespace {

struct DestroyTemplate {
  void operator()(cudaGraph_t graph) const {
    WarnIfFailed(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }
};
using Template = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyTemplate>;

}  // namespace

void DestroyGraph::operator()(cudaGraphExec_t graph) const {
  WarnIfFailed(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
}

CudaGraph CaptureGraph(cudaStream_t stream, const std::function<void()>& work) {
  // Other threads, which are other ranks, may go on allocating.
  TRIMTAB_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cudaGraph_t recorded = nullptr;
  try {
    work();
  } catch (...) {
    // The capture may be broken already; what broke it is what the caller must hear of.
    cudaStreamEndCapture(stream, &recorded);
    cudaGetLastError();
    const Template discarded(recorded);
    throw;
  }
  TRIMTAB_CUDA_CHECK(cudaStreamEndCapture(stream, &recorded));
  const Template finished(recorded);
  cudaGraphExec_t graph = nullptr;
  TRIMTAB_CUDA_CHECK(cudaGraphInstantiate(&graph, finished.get(), 0));
  CudaGraph owned(graph);
  TRIMTAB_CUDA_CHECK(cudaGraphUpload(graph, stream));
  return owned;
}

void CapturePool::Use(const std::function<void()>& capture) {
  allocator_.OpenPool(id_);
  try {
    capture();
  } catch (...) {
    allocator_.ClosePool();
    throw;
  }
  allocator_.ClosePool();
  const int64_t left = allocator_.in_use_bytes(id_);
  TRIMTAB_ASSERT(left == 0, "captured work allocated {} bytes and kept them", left);
}

void GraphWork::Replay() { TRIMTAB_CUDA_CHECK(cudaGraphLaunch(graph_.get(), device_.Activate())); }

}  // namespace trimtab
