// SlotStorage: a slot's values for all elements that a rule updates on this rank, and their scales.
#pragma once

#include <cstdint>
#include <span>

#include "engine/device/device.h"
#include "engine/optim/state_slot.h"

namespace trimtab {

class SlotStorage {
 public:
  /// Allocates zeros for `numel` elements in `blocks` blocks.
  SlotStorage(Device& device, const StateSlot& slot, int64_t numel, int64_t blocks);

  const StateSlot& slot() const { return slot_; }
  /// Returns the elements [begin, begin + count), which start at the first element of
  /// `first_block`.
  Moment At(int64_t begin, int64_t count, int64_t first_block) const;

  // fp32 values of elements from `begin` on. The first one is `within` elements into `first_block`.

  /// Sets them. Whole blocks must be given, or the last ones of a run of elements: `within` is 0.
  void Write(int64_t begin, int64_t first_block, std::span<const float> values) const;
  void Read(int64_t begin, int64_t first_block, int64_t within, std::span<float> values) const;

 private:
  StateSlot slot_;
  Tensor values_;
  Tensor scales_;
};

}  // namespace trimtab
