// Buffers: fp32 values that a layer keeps from step to step and that are no parameters. They are
// the same on every tensor- and data-parallel rank.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/tensor.h"

namespace trimtab {

enum class BufferKind {
  kState,      // begins at zero and belongs to the model: checkpoints hold it
  kStatistic,  // counted anew in every step, on each data-parallel rank for itself, and then summed
};

struct Buffer {
  std::string name;  // Megatron-Core's, e.g. "decoder.layers.0.mlp.router.expert_bias"
  BufferKind kind{};
  int64_t numel = 0;
  Tensor values;  // [numel], once allocated

  /// Values [first, first + count).
  Tensor Part(int64_t first, int64_t count) const { return values.Slice(first, {count}); }
};

class BufferStore {
 public:
  /// The reference stays valid.
  Buffer& Declare(const std::string& name, BufferKind kind, int64_t numel);
  /// Allocates all of them, zeroed. Once.
  void Allocate(Device& device);

  /// In the order of their declaration.
  const std::vector<std::unique_ptr<Buffer>>& all() const { return buffers_; }
  /// The statistics one after the other; undefined where there are none.
  const Tensor& statistics() const { return statistics_; }

 private:
  Tensor AllocateKind(Device& device, BufferKind kind, MemoryTag tag);

  std::vector<std::unique_ptr<Buffer>> buffers_;
  Tensor states_;
  Tensor statistics_;
};

/// Copies `values`, by name, into the buffers of kind kState. Throws InputError where one of them
/// is missing or of another length, after `where`.
void LoadBuffers(const BufferStore& buffers,
                 const std::map<std::string, std::vector<float>>& values, const std::string& where);

}  // namespace trimtab
