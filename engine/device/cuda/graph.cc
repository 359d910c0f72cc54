#include "engine/device/cuda/graph.h"

#include <utility>

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

CapturePool::CapturePool(CapturePool&& other) noexcept
    : allocator_(std::exchange(other.allocator_, nullptr)), id_(other.id_), open_(other.open_) {}

CapturePool::~CapturePool() {
  if (allocator_ == nullptr) return;
  Close();
  allocator_->ReleasePool(id_);
}

void CapturePool::Close() {
  if (open_) allocator_->EndPool();
  open_ = false;
}

void GraphWork::Replay() { TRIMTAB_CUDA_CHECK(cudaGraphLaunch(graph_.get(), device_.Activate())); }

}  // namespace trimtab
