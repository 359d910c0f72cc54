// Operands of cpu kernels, which compute in fp32, in whatever they are stored. fp32 tensors pass
// straight through; others are widened into host memory, and results rounded back to nearest even
// when the object ends.
//
// That memory belongs to the kernel, like oneDNN's packing buffers: each rank's thread keeps and
// reuses it, and the device's tracker does not count it. Counted memory is what the training step
// itself needs, on every device alike, and a GPU reads 16-bit operands as they are.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/device/tensor.h"

namespace trimtab {

/// Host memory for floats, from the calling thread's store and returned to it.
class HostFloats {
 public:
  explicit HostFloats(int64_t count);
  ~HostFloats();
  HostFloats(const HostFloats&) = delete;
  HostFloats& operator=(const HostFloats&) = delete;

  float* data() { return memory_.data(); }

 private:
  std::vector<float> memory_;
};

/// An operand that is only read. Undefined tensors have no data (nullptr).
class F32In {
 public:
  /// Every value times `factor`, which is 1 for anything but fp8.
  explicit F32In(const Tensor& tensor, float factor = 1.0f);
  const float* data() const { return data_; }

 private:
  HostFloats buffer_;
  const float* data_;
};

/// A result. Unless the kernel also reads it, it writes all of it. Undefined tensors have no data.
class F32Out {
 public:
  explicit F32Out(const Tensor& tensor, bool read = false);
  ~F32Out();
  F32Out(const F32Out&) = delete;
  F32Out& operator=(const F32Out&) = delete;

  float* data() { return data_; }

 private:
  Tensor tensor_;
  HostFloats buffer_;
  float* data_;
};

/// A result that the kernel also reads.
class F32InOut : public F32Out {
 public:
  explicit F32InOut(const Tensor& tensor) : F32Out(tensor, /*read=*/true) {}
};

}  // namespace trimtab
