// CUDA graphs: work recorded from a stream, replayed with one launch.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "engine/device/caching_allocator.h"
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

/// The memory of a device's captures. They share it, as they never run at the same time and none
/// leaves anything in it: a step that is captured in parts needs as much as its largest part.
class CapturePool {
 public:
  explicit CapturePool(CachingAllocator& allocator)
      : allocator_(allocator), id_(allocator.NewPool()) {}
  ~CapturePool() { allocator_.ReleasePool(id_); }
  CapturePool(const CapturePool&) = delete;
  CapturePool& operator=(const CapturePool&) = delete;

  /// Runs `capture` with all memory from here. A programmer's fault if anything that it allocates
  /// outlives it: another capture's replay would write over that.
  void Use(const std::function<void()>& capture);

 private:
  CachingAllocator& allocator_;
  CachingAllocator::PoolId id_;
};

class GraphWork final : public CapturedWork {
 public:
  /// `device` must outlive this.
  GraphWork(CudaDevice& device, CudaGraph graph, std::shared_ptr<CapturePool> pool)
      : device_(device), pool_(std::move(pool)), graph_(std::move(graph)) {}
  void Replay() override;

 private:
  CudaDevice& device_;
  std::shared_ptr<CapturePool> pool_;  // outlives the graph
  CudaGraph graph_;
};

}  // namespace trimtab
