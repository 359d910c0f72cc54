// A device of kind cuda on the host: kernels run under emulation, so that what is written for a GPU
// is tested where there is none.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "engine/base/units.h"
#include "engine/device/cuda/emulation/cuda_emulation.h"
#include "engine/device/device.h"

namespace trimtab {

struct EmulatedDeviceOptions {
  bool deterministic = false;
  /// Few and odd, so that loops over the grid take several turns and end unevenly.
  int multiprocessors = 3;
  /// As a GPU's: see CudaDevice. Less makes ops take several turns.
  int64_t scratch_bytes = 64 * kMiB;
};

class EmulatedDevice : public Device {
 public:
  /// One allocation.
  struct Block {
    void* data;
    int64_t bytes;
  };

  /// `ops` must outlive the device; without any, every op refuses.
  explicit EmulatedDevice(const CudaOps* ops, const EmulatedDeviceOptions& options = {});
  ~EmulatedDevice() override;

  void CopyFromHost(void* device_data, const void* host, int64_t bytes) override;
  void CopyToHost(void* host, const void* device_data, int64_t bytes) override;
  void Synchronize() override;

  bool CanCapture() const override { return true; }
  std::unique_ptr<CapturedWork> Capture(const std::function<void()>& work) override;

  const EmulatedDeviceOptions& options() const { return options_; }
  void* scratch() const { return scratch_; }

  emulation::Stream* stream() { return &stream_; }

 protected:
  /// Every byte is 0xff: NaN in every float format, so that a read of fresh memory shows.
  void* AllocateRaw(int64_t bytes) override;
  void FreeRaw(void* data, int64_t bytes) override;

 private:
  EmulatedDeviceOptions options_;
  void* scratch_ = nullptr;
  emulation::Stream stream_;
  // Memory freed while capturing belongs to the captured work.
  std::vector<Block>* kept_ = nullptr;
};

}  // namespace trimtab
