#include "engine/ops/elementwise/widen.h"

#include <algorithm>
#include <utility>

#include "engine/ops/cpu/elementwise/convert.h"

namespace trimtab {
namespace {

// Buffers that no op holds now. An op holds a handful at most.
thread_local std::vector<std::vector<float>> idle_buffers;

int64_t CountToWiden(const Tensor& tensor) {
  return tensor.defined() && tensor.dtype() != DType::kF32 ? tensor.numel() : 0;
}

}  // namespace

HostFloats::HostFloats(int64_t count) {
  if (count == 0) return;
  const auto size = static_cast<size_t>(count);
  // The smallest that is large enough; if none is, the largest makes room for a new one.
  auto best = idle_buffers.end();
  for (auto buffer = idle_buffers.begin(); buffer != idle_buffers.end(); ++buffer) {
    const bool fits = buffer->size() >= size;
    if (best == idle_buffers.end()) {
      best = buffer;
    } else if (best->size() >= size ? fits && buffer->size() < best->size()
                                    : buffer->size() > best->size()) {
      best = buffer;
    }
  }
  if (best != idle_buffers.end()) {
    memory_ = std::move(*best);
    idle_buffers.erase(best);
  }
  if (memory_.size() < size) memory_ = std::vector<float>(size);
}

HostFloats::~HostFloats() {
  if (!memory_.empty()) idle_buffers.push_back(std::move(memory_));
}

F32In::F32In(const Tensor& tensor, float factor) : buffer_(CountToWiden(tensor)), data_(nullptr) {
  if (!tensor.defined()) return;
  TRIMTAB_ASSERT(factor == 1.0f || IsFp8(tensor.dtype()), "a factor of {} on {} operands", factor,
                 Name(tensor.dtype()));
  if (tensor.dtype() == DType::kF32) {
    data_ = tensor.f32();
    return;
  }
  const int threads = tensor.device().threads();
  WidenCpu(threads, tensor.dtype(), tensor.numel(), tensor.raw(), buffer_.data());
  if (factor != 1.0f) ScaleCpu(threads, tensor.numel(), factor, buffer_.data());
  data_ = buffer_.data();
}

F32Out::F32Out(const Tensor& tensor, bool read)
    : tensor_(tensor), buffer_(CountToWiden(tensor)), data_(nullptr) {
  if (!tensor.defined()) return;
  if (tensor.dtype() == DType::kF32) {
    data_ = tensor.f32();
    return;
  }
  data_ = buffer_.data();
  if (!read) return;
  WidenCpu(tensor.device().threads(), tensor.dtype(), tensor.numel(), tensor.raw(), data_);
}

F32Out::~F32Out() {
  if (!tensor_.defined() || tensor_.dtype() == DType::kF32) return;
  RoundCpu(tensor_.device().threads(), tensor_.dtype(), tensor_.numel(), data_, tensor_.raw());
}

}  // namespace trimtab
