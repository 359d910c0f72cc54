#include "tests/engine/ops/op_inputs.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "tests/engine/ops/op_test.h"

namespace trimtab {

Tensor ListValues(Device& device, const Shape& shape, uint32_t seed, DType dtype) {
  static std::map<std::tuple<int64_t, uint32_t, DType>, std::vector<char>> known;
  const Tensor tensor = Tensor::Empty(device, shape, dtype, MemoryTag::kActivations);
  std::vector<char>& bytes = known[{shape.numel(), seed, dtype}];
  if (bytes.empty()) bytes = Encoded(dtype, RandomValues(shape.numel(), seed));
  device.CopyFromHost(tensor.raw(), bytes.data(), tensor.bytes());
  return tensor;
}

Tensor ListConstant(Device& device, const Shape& shape, float value, DType dtype) {
  Tensor tensor = Tensor::Empty(device, shape, dtype, MemoryTag::kActivations);
  Upload(tensor, std::vector<float>(static_cast<size_t>(shape.numel()), value));
  return tensor;
}

Tensor ListIds(Device& device, const Shape& shape, const std::function<int64_t(int64_t i)>& value) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < shape.numel(); ++i) ids.push_back(static_cast<int32_t>(value(i)));
  Tensor tensor = Tensor::Empty(device, shape, DType::kI32, MemoryTag::kActivations);
  CopyFromHost(tensor, ids);
  return tensor;
}

OpCase ListCase(const OpRecord& record, std::function<std::vector<Tensor>(Device&)> run) {
  return {std::string(Name(record.kind)), record, [](const Executor&) { return int64_t{0}; },
          std::move(run)};
}

int32_t PackedPosition(int64_t offset, std::initializer_list<int64_t> begins) {
  int64_t begin = *begins.begin();
  for (const int64_t each : begins) begin = each <= offset ? each : begin;
  return static_cast<int32_t>(offset - begin);
}

RowLayout KeysAhead(const RowLayout& queries, const AttentionBlock& block, int64_t ahead) {
  RowLayout keys(queries.batch, queries.sequence);
  keys.first = queries.offset(block.query) - block.key - ahead;
  return keys;
}

}  // namespace trimtab
