// The cases of op_list.h that belong to serving.
#include <numeric>

#include "engine/ops/attention/paged_attention.h"
#include "engine/ops/packed/packed_lookup.h"
#include "tests/engine/ops/op_inputs.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

// Of a prompt in one piece, of one token, of a chunk.
const std::vector<PagedSegment> kSequences = {{0, 300, 0}, {300, 1, 170}, {301, 90, 64}};
const AttentionShape kShape = {.rows = {1, 391}, .heads = 6, .kv_heads = 3, .head_size = 20};
constexpr int64_t kBlockSize = 16;
constexpr int64_t kBlocks = 41;

AttentionShape ShapeOn(Device& device) {
  std::vector<std::vector<int32_t>> blocks;
  int32_t next = 0;
  for (const PagedSegment& each : kSequences) {
    auto& own = blocks.emplace_back();
    for (int64_t i = 0; i < each.end_position(); i += kBlockSize) own.push_back(next++);
  }
  AttentionShape shape = kShape;
  shape.rows = RowLayout::Paged(device, kSequences, blocks, MemoryTag::kActivations);
  return shape;
}

PagedCache Cache(Device& device, DType entries) {
  PagedCache cache =
      NewPagedCache(device, kBlocks, kBlockSize, kShape.kv_heads, kShape.head_size, entries);
  cache.keys = ListValues(device, cache.keys.shape(), 1, entries);
  cache.values = ListValues(device, cache.values.shape(), 2, entries);
  return cache;
}

PackedMatrix Weights(Device& device, WeightFormat format, int64_t matrices) {
  PackedMatrix packed = NewPackedMatrix(device, format, matrices, 75, 64);
  for (int64_t i = 0; i < matrices; ++i) {
    PackWeights(RandomValues(75 * 64, static_cast<uint32_t>(i + 4)), i, packed);
  }
  return packed;
}

}  // namespace

std::vector<OpCase> ServingOpsIn(DType dtype) {
  std::vector<OpCase> ops;
  const std::unique_ptr<Device> meta = MakeMetaDevice(1);
  const auto qkv = [dtype](Device& d) {
    return ListValues(d, {kShape.tokens(), kShape.qkv_size()}, 3, dtype);
  };
  ops.push_back(ListCase(StoreKvRecord(kShape, dtype, dtype), [dtype, qkv](Device& d) {
    const PagedCache cache = Cache(d, dtype);
    StoreKv(ShapeOn(d), qkv(d), cache);
    return std::vector<Tensor>{cache.keys, cache.values};
  }));
  ops.push_back(
      ListCase(PagedAttentionRecord(ShapeOn(*meta), dtype, dtype), [dtype, qkv](Device& d) {
        Tensor out = ListValues(d, {kShape.tokens(), kShape.heads * kShape.head_size}, 5, dtype);
        PagedAttention(ShapeOn(d), qkv(d), Cache(d, dtype), ListValues(d, {kShape.heads}, 9, dtype),
                       out);
        return std::vector<Tensor>{out};
      }));
  ops.back().workspace_bytes = [dtype](const Executor& executor) {
    const std::unique_ptr<Device> device = MakeMetaDevice(1);
    return PagedAttentionWorkspaceBytes(ShapeOn(*device), Cache(*device, dtype), executor);
  };
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt4}) {
    ops.push_back(ListCase(PackedGemmRecord(140, Weights(*meta, format, 1), dtype),
                           [dtype, format](Device& d) {
                             Tensor y = ListValues(d, {140, 75}, 6, dtype);
                             PackedGemm(ListValues(d, {140, 64}, 7, dtype), Weights(d, format, 1),
                                        ListValues(d, {75}, 8, dtype), y);
                             return std::vector<Tensor>{y};
                           }));
    ops.back().name += '_';
    ops.back().name += Name(format);
  }
  ops.push_back(ListCase(
      PackedLookupRecord(140, Weights(*meta, WeightFormat::kInt8, 1), dtype), [dtype](Device& d) {
        Tensor out = ListValues(d, {140, 64}, 6, dtype);
        Tensor ids = Tensor::Empty(d, {140}, DType::kI32, MemoryTag::kActivations);
        std::vector<int32_t> rows(140);
        std::iota(rows.begin(), rows.end(), 0);  // some beyond the table's 75
        CopyFromHost(ids, std::span<const int32_t>(rows));
        PackedLookup(ids, Weights(d, WeightFormat::kInt8, 1), /*vocab_start=*/0, out);
        return std::vector<Tensor>{out};
      }));
  ops.back().name += "_packed";
  ops.push_back(ListCase(
      GroupedPackedGemmRecord(140, Weights(*meta, WeightFormat::kInt8, 3), dtype),
      [dtype](Device& d) {
        Tensor y = ListValues(d, {140, 75}, 6, dtype);
        GroupedPackedGemm(ListValues(d, {140, 64}, 7, dtype), Weights(d, WeightFormat::kInt8, 3),
                          std::vector<int64_t>{100, 0, 40}, y);
        return std::vector<Tensor>{y};
      }));
  return ops;
}

}  // namespace trimtab
