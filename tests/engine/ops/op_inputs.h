// Inputs of the cases of op_list.h.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "engine/device/tensor.h"
#include "engine/ops/attention/attention_block.h"
#include "tests/engine/ops/op_list.h"

namespace trimtab {

/// Random values, made once for each seed: every op is run many times on the same ones.
Tensor ListValues(Device& device, const Shape& shape, uint32_t seed, DType dtype = DType::kF32);
Tensor ListConstant(Device& device, const Shape& shape, float value, DType dtype = DType::kF32);
/// int32, element i being value(i).
Tensor ListIds(Device& device, const Shape& shape, const std::function<int64_t(int64_t i)>& value);

/// Returns the position of the token at `offset` in its document, given the offsets, ascending, at
/// which documents begin.
int32_t PackedPosition(int64_t offset, std::initializer_list<int64_t> begins);

/// Returns a layout of keys, as many as `queries`, of which the block's first is `ahead` tokens
/// before its first query.
RowLayout KeysAhead(const RowLayout& queries, const AttentionBlock& block, int64_t ahead);

/// A case without scratch, named after its kind.
OpCase ListCase(const OpRecord& record, std::function<std::vector<Tensor>(Device&)> run);

}  // namespace trimtab
