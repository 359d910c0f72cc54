#include "engine/optim/slot_storage.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/units.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/math.h"
#include "engine/ops/optimizer/moment_codes.h"
#include "engine/ops/optimizer/update_state.h"

namespace trimtab {
namespace {

Tensor Zeros(Device& device, int64_t count, DType dtype) {
  Tensor tensor = Tensor::Empty(device, {count}, dtype, MemoryTag::kOptimizer);
  Fill(tensor, 0.0f);
  return tensor;
}

float Largest(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

}  // namespace

StateSlot MomentSlot(const char* name, const TrainingTypes& types, MomentSign sign) {
  return {.name = name,
          .dtype = types.moments,
          .block = IsScaledMoment(types.moments) ? kMomentBlock : 0,
          .sign = sign};
}

SlotStorage::SlotStorage(Device& device, const StateSlot& slot, int64_t numel, int64_t blocks)
    : slot_(slot), values_(Zeros(device, numel, slot.dtype)) {
  if (slot.block > 0) scales_ = Zeros(device, blocks, DType::kF32);
}

Moment SlotStorage::At(int64_t begin, int64_t count, int64_t first_block) const {
  Moment view = {.values = values_.Slice(begin, {count}), .scales = {}};
  if (scales_.defined()) view.scales = scales_.Slice(first_block, {CeilDiv(count, slot_.block)});
  return view;
}

void SlotStorage::Write(int64_t begin, int64_t first_block, std::span<const float> values) const {
  Moment view = At(begin, std::ssize(values), first_block);
  if (!view.scales.defined()) return CopyFromHost(view.values, values);
  std::vector<float> scales;
  std::vector<float> stored;  // before they are rounded
  for (size_t first = 0; first < values.size(); first += static_cast<size_t>(slot_.block)) {
    const auto block =
        values.subspan(first, std::min(static_cast<size_t>(slot_.block), values.size() - first));
    float scale = 0;
    float inverse = 0;
    if (slot_.dtype == DType::kI8) {
      MomentCodeScale(Largest(block), scale, inverse);
    } else {
      MomentScale(Largest(block), scale, inverse);
    }
    scales.push_back(scale);
    for (const float value : block) stored.push_back(value * inverse);
  }
  CopyFromHost(view.scales, scales);
  if (slot_.dtype != DType::kI8) return CopyFromHost(view.values, stored);
  std::vector<uint8_t> codes;
  for (const float value : stored) codes.push_back(StoredMoment(slot_.sign, value));
  CopyBytesFromHost(view.values, std::as_bytes(std::span(codes)));
}

void SlotStorage::Read(int64_t begin, int64_t first_block, int64_t within,
                       std::span<float> values) const {
  const Tensor stored = values_.Slice(begin, {std::ssize(values)});
  if (slot_.dtype == DType::kI8) {
    std::vector<uint8_t> codes(values.size());
    CopyBytesToHost(stored, std::as_writable_bytes(std::span(codes)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = MomentValue(slot_.sign, codes[i]);
  } else {
    CopyToHost(stored, values);
  }
  if (slot_.block == 0) return;
  std::vector<float> scales(static_cast<size_t>(CeilDiv(within + std::ssize(values), slot_.block)));
  CopyToHost(scales_.Slice(first_block, {std::ssize(scales)}), scales);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] *= scales[(static_cast<size_t>(within) + i) / static_cast<size_t>(slot_.block)];
  }
}

}  // namespace trimtab
