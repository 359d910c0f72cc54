#include "engine/parameters/buffers.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {

Buffer& BufferStore::Declare(const std::string& name, BufferKind kind, int64_t numel) {
  return *buffers_.emplace_back(
      std::make_unique<Buffer>(Buffer{.name = name, .kind = kind, .numel = numel, .values = {}}));
}

Tensor BufferStore::AllocateKind(Device& device, BufferKind kind, MemoryTag tag) {
  int64_t total = 0;
  for (const auto& buffer : buffers_) total += buffer->kind == kind ? buffer->numel : 0;
  if (total == 0) return {};
  Tensor values = Tensor::Empty(device, {total}, DType::kF32, tag);
  Fill(values, 0.0f);
  int64_t first = 0;
  for (const auto& buffer : buffers_) {
    if (buffer->kind != kind) continue;
    buffer->values = values.Slice(first, {buffer->numel});
    first += buffer->numel;
  }
  return values;
}

void BufferStore::Allocate(Device& device) {
  states_ = AllocateKind(device, BufferKind::kState, MemoryTag::kWeights);
  statistics_ = AllocateKind(device, BufferKind::kStatistic, MemoryTag::kOptimizer);
}

void LoadBuffers(const BufferStore& buffers,
                 const std::map<std::string, std::vector<float>>& values,
                 const std::string& where) {
  for (const auto& buffer : buffers.all()) {
    if (buffer->kind != BufferKind::kState) continue;
    const auto found = values.find(buffer->name);
    if (found == values.end() || std::ssize(found->second) != buffer->numel) {
      throw InputError(fmt::format("{}: expected a buffer '{}' of {} values", where, buffer->name,
                                   buffer->numel));
    }
    CopyFromHost(buffer->values, found->second);
  }
}

}  // namespace trimtab
