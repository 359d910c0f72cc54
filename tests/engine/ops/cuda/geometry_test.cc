// What a kernel computes does not change from call to call in deterministic mode, nor does it
// depend on the GPU that runs it: on one with more multiprocessors, and so with more blocks, every
// op gives the same bits. Except the gradients of norms' weights, which each block adds up over its
// own rows.
#include <gtest/gtest.h>

#include "engine/ops/cuda/emulated_ops.h"
#include "tests/engine/ops/op_list.h"

namespace trimtab {
namespace {

std::vector<std::vector<char>> Results(const OpCase& op, const EmulatedDeviceOptions& options) {
  const auto device = MakeEmulatedDevice(options);
  std::vector<std::vector<char>> results;
  for (const Tensor& output : op.run(*device)) {
    results.emplace_back(static_cast<size_t>(output.bytes()));
    device->CopyToHost(results.back().data(), output.raw(), output.bytes());
  }
  return results;
}

bool AddsUpByBlock(OpKind kind) {
  return kind == OpKind::kLayerNormBackward || kind == OpKind::kRmsNormBackward ||
         kind == OpKind::kHeadNormBackward || kind == OpKind::kBiasBackward ||
         kind == OpKind::kGroupedBiasBackward;
}

TEST(GeometryTest, EveryOpGivesTheSameBitsOnAnyNumberOfMultiprocessors) {
  for (const OpCase& op : EveryOpIn(DType::kBf16, DType::kF32)) {
    SCOPED_TRACE(op.name);
    const auto expected = Results(op, {.deterministic = true, .multiprocessors = 3});
    const int other = AddsUpByBlock(op.record.kind) ? 3 : 1;
    // Compared first: printing whole tensors would help nobody.
    const bool same = Results(op, {.deterministic = true, .multiprocessors = other}) == expected;
    EXPECT_TRUE(same) << "on " << other << " multiprocessors";
  }
}

}  // namespace
}  // namespace trimtab
