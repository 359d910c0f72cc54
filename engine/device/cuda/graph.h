// CUDA graphs: work recorded from a stream, replayed with one launch.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <type_traits>

#include "engine/device/cuda/caching_allocator.h"
#include "engine/device/device.h"

namespace trimtab {

class CudaDevice;

struct DestroyGraph {
  void operator()(cudaGraphExec_t graph) const;
};
/// Ready to launch.
using CudaGraph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph>;

/// What `work` submits to `stream`, and to streams it orders after it and joins again.
/// What `work` throws ends the capture and goes on to the caller.
CudaGraph CaptureGraph(cudaStream_t stream, const std::function<void()>& work);

/// The memory of one capture: open while it lasts, reserved until this goes away.
class CapturePool {
 public:
  explicit CapturePool(CachingAllocator& allocator)
      : allocator_(&allocator), id_(allocator.BeginPool()) {}
  ~CapturePool();
  CapturePool(CapturePool&& other) noexcept;
  CapturePool(const CapturePool&) = delete;
  CapturePool& operator=(const CapturePool&) = delete;

  void Close();

 private:
  CachingAllocator* allocator_;  // nullptr once moved from
  CachingAllocator::PoolId id_;
  bool open_ = true;
};

class GraphWork final : public CapturedWork {
 public:
  /// `device` must outlive this.
  GraphWork(CudaDevice& device, CudaGraph graph, CapturePool pool)
      : device_(device), pool_(std::move(pool)), graph_(std::move(graph)) {}
  void Replay() override;

 private:
  CudaDevice& device_;
  CapturePool pool_;  // outlives the graph
  CudaGraph graph_;
};

}  // namespace trimtab
