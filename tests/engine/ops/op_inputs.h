// Inputs of the cases of op_list.h.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/device/tensor.h"
#include "tests/engine/ops/op_list.h"

namespace trimtab {

/// Random values, made once for each seed: every op is run many times on the same ones.
Tensor ListValues(Device& device, const Shape& shape, uint32_t seed, DType dtype = DType::kF32);
Tensor ListConstant(Device& device, const Shape& shape, float value, DType dtype = DType::kF32);
/// int32, element i being value(i).
Tensor ListIds(Device& device, const Shape& shape, const std::function<int64_t(int64_t i)>& value);

/// A case without scratch, named after its kind.
OpCase ListCase(const OpRecord& record, std::function<std::vector<Tensor>(Device&)> run);

}  // namespace trimtab
