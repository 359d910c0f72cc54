#include "engine/ops/paged_attention.h"

#include <algorithm>

#include "engine/base/units.h"
#include "engine/ops/attention_operands.h"
#include "engine/ops/cpu/paged_attention.h"
#include "engine/ops/cpu/store_kv.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/widen.h"

namespace trimtab {
namespace {

/// Of a query at `position`.
int64_t VisibleKeys(const ScoreOptions& scores, int64_t position) {
  return scores.window > 0 ? std::min(scores.window, position + 1) : position + 1;
}

/// Sum of VisibleKeys over the positions before `end`.
int64_t VisibleScoresBefore(const ScoreOptions& scores, int64_t end) {
  const int64_t window = scores.window > 0 ? std::min(scores.window, end) : end;
  return window * (window + 1) / 2 + (end - window) * window;
}

/// Bytes of the entries of one token.
int64_t EntryBytes(const AttentionShape& s, DType entries) {
  return s.values_in_keys ? KeyCacheBytesPerToken(s.kv_heads, s.head_size, entries)
                          : PagedCacheBytesPerToken(s.kv_heads, s.head_size, entries);
}

void CheckCache(OpKind op, const AttentionShape& s, const PagedRows& rows, const PagedCache& cache,
                const Device& device) {
  CheckAttention(op, s);
  const int64_t blocks = cache.blocks();
  const int64_t size = cache.block_size();
  const DType dtype = cache.dtype();
  TRIMTAB_ASSERT(IsPlainFloat(dtype) || HasScales(dtype), "{}: a cache of {}", Name(op),
                 Name(dtype));
  CheckOperand(op, "keys", cache.keys, {blocks, s.kv_heads, s.head_size, size}, device, dtype);
  if (s.values_in_keys) {
    TRIMTAB_ASSERT(!cache.values.defined() && s.value_size() <= s.head_size,
                   "{}: values of {} dims in keys of {}, and some of their own", Name(op),
                   s.value_size(), s.head_size);
  } else {
    TRIMTAB_ASSERT(s.value_size() == s.head_size, "{}: values of {} dims, keys of {}", Name(op),
                   s.value_size(), s.head_size);
    CheckOperand(op, "values", cache.values, {blocks, s.kv_heads, size, s.head_size}, device,
                 dtype);
  }
  if (HasScales(dtype)) {
    CheckOperand(op, "scales", cache.scales, {s.values_in_keys ? 1 : 2, blocks, s.kv_heads, size},
                 device);
  }
  CheckOperand(op, "positions", rows.positions, {s.tokens()}, device, DType::kI32);
  CheckOperand(op, "sequence_of", rows.sequence_of, {s.tokens()}, device, DType::kI32);
  const auto sequences = static_cast<int64_t>(rows.sequences.size());
  CheckMatrix(op, "blocks", rows.blocks);
  CheckOperand(op, "blocks", rows.blocks, {sequences, rows.blocks.dim(1)}, device, DType::kI32);
  TRIMTAB_ASSERT(rows.end_position() <= rows.blocks.dim(1) * size,
                 "{}: a position {} in {} blocks of {}", Name(op), rows.end_position() - 1,
                 rows.blocks.dim(1), size);
}

/// A part of a cache. Zeros are all bits clear in every type.
Tensor Zeroed(Device& device, const Shape& shape, DType dtype) {
  const Tensor tensor = Tensor::Empty(device, shape, dtype, MemoryTag::kKvCache);
  const std::vector<char> zeros(
      static_cast<size_t>(device.kind() == DeviceKind::kMeta ? 0 : tensor.bytes()));
  if (!zeros.empty()) device.CopyFromHost(tensor.raw(), zeros.data(), tensor.bytes());
  return tensor;
}

}  // namespace

int64_t PagedRows::end_position() const {
  int64_t end = 0;
  for (const PagedSequence& each : sequences) end = std::max(end, each.end_position());
  return end;
}

Positions PagedRows::ListedPositions() const {
  const auto* list = static_cast<const int32_t*>(positions.raw());
  return Positions::Listed(list, count(), end_position());
}

int64_t PagedRows::visible_scores(const ScoreOptions& scores) const {
  int64_t sum = 0;
  for (const PagedSequence& each : sequences) {
    sum += VisibleScoresBefore(scores, each.end_position()) -
           VisibleScoresBefore(scores, each.first_position);
  }
  return sum;
}

int64_t PagedRows::visible_keys(const ScoreOptions& scores) const {
  int64_t sum = 0;
  for (const PagedSequence& each : sequences) {
    sum += VisibleKeys(scores, each.first_position) + each.rows - 1;
  }
  return sum;
}

PagedRows MakePagedRows(Device& device, std::vector<PagedSequence> sequences,
                        std::span<const std::vector<int32_t>> blocks, MemoryTag tag) {
  TRIMTAB_ASSERT(!sequences.empty() && blocks.size() == sequences.size(),
                 "{} sequences with {} tables of blocks", sequences.size(), blocks.size());
  std::vector<int32_t> positions;
  std::vector<int32_t> sequence_of;
  size_t most_blocks = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const PagedSequence& each = sequences[s];
    TRIMTAB_ASSERT(each.first_row == std::ssize(positions) && each.rows > 0,
                   "sequence {} has {} rows from {}, expected some from {}", s, each.rows,
                   each.first_row, positions.size());
    for (int64_t i = 0; i < each.rows; ++i) {
      positions.push_back(static_cast<int32_t>(each.first_position + i));
      sequence_of.push_back(static_cast<int32_t>(s));
    }
    most_blocks = std::max(most_blocks, blocks[s].size());
  }
  std::vector<int32_t> table(sequences.size() * most_blocks);
  for (size_t s = 0; s < sequences.size(); ++s) {
    std::copy(blocks[s].begin(), blocks[s].end(),
              table.begin() + static_cast<int64_t>(s * most_blocks));
  }
  const auto upload = [&](const Shape& shape, const std::vector<int32_t>& values) {
    Tensor tensor = Tensor::Empty(device, shape, DType::kI32, tag);
    CopyFromHost(tensor, std::span<const int32_t>(values));
    return tensor;
  };
  const auto count = std::ssize(positions);
  return {.sequences = std::move(sequences),
          .positions = upload({count}, positions),
          .sequence_of = upload({count}, sequence_of),
          .blocks = upload({std::ssize(blocks), static_cast<int64_t>(most_blocks)}, table)};
}

int64_t KeyCacheBytesPerToken(int64_t kv_heads, int64_t head_size, DType entries) {
  const int64_t scale = HasScales(entries) ? SizeOf(DType::kF32) : 0;
  return kv_heads * (head_size * SizeOf(entries) + scale);
}

int64_t PagedCacheBytesPerToken(int64_t kv_heads, int64_t head_size, DType entries) {
  return 2 * KeyCacheBytesPerToken(kv_heads, head_size, entries);
}

PagedCache NewPagedCache(Device& device, int64_t blocks, int64_t block_size, int64_t kv_heads,
                         int64_t head_size, DType entries) {
  PagedCache cache = {.keys = Zeroed(device, {blocks, kv_heads, head_size, block_size}, entries),
                      .values = Zeroed(device, {blocks, kv_heads, block_size, head_size}, entries),
                      .scales = {}};
  if (HasScales(entries)) {
    cache.scales = Zeroed(device, {2, blocks, kv_heads, block_size}, DType::kF32);
  }
  return cache;
}

PagedCache NewKeyCache(Device& device, int64_t blocks, int64_t block_size, int64_t kv_heads,
                       int64_t head_size, DType entries) {
  PagedCache cache = {.keys = Zeroed(device, {blocks, kv_heads, head_size, block_size}, entries),
                      .values = {},
                      .scales = {}};
  if (HasScales(entries)) {
    cache.scales = Zeroed(device, {1, blocks, kv_heads, block_size}, DType::kF32);
  }
  return cache;
}

OpRecord StoreKvRecord(const AttentionShape& s, DType dtype, DType entries) {
  const int64_t columns = s.kv_size();
  return {.kind = OpKind::kStoreKv,
          .dtype = dtype,
          .dims = {s.tokens(), columns},
          .bytes = s.tokens() * (columns * SizeOf(dtype) + EntryBytes(s, entries))};
}

OpRecord PagedAttentionRecord(const AttentionShape& s, const PagedRows& rows, DType dtype,
                              DType entries) {
  return {.kind = OpKind::kPagedAttention,
          .dtype = dtype,
          .dims = {s.tokens(), s.heads, s.head_size, s.kv_heads},
          .flops = 2 * s.heads * ForwardColumns(s) * rows.visible_scores(s.scores),
          .bytes = s.tokens() * (s.query_size() + s.out_size()) * SizeOf(dtype) +
                   rows.visible_keys(s.scores) * EntryBytes(s, entries)};
}

int64_t PagedAttentionWorkspaceBytes(const AttentionShape& shape, const PagedRows& rows,
                                     const PagedCache& cache, const Executor& executor) {
  if (executor.kind == DeviceKind::kCuda) return 0;
  return executor.threads * PagedAttentionScratchCpu(shape, rows, cache) * SizeOf(DType::kF32);
}

void StoreKv(const AttentionShape& shape, const PagedRows& rows, const Tensor& qkv,
             const PagedCache& cache) {
  constexpr OpKind kOp = OpKind::kStoreKv;
  Device& device = qkv.device();
  CheckPlainFloat(kOp, "qkv", qkv);
  CheckCache(kOp, shape, rows, cache, device);
  CheckOperand(kOp, "qkv", qkv, QkvShape(shape), device, qkv.dtype());
  const OpScope scope(device, StoreKvRecord(shape, qkv.dtype(), cache.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::store_kv)(shape, rows, qkv, cache);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  StoreKvCpu(device.threads(), shape, rows, F32In(qkv).data(), cache);
}

void PagedAttention(const AttentionShape& shape, const PagedRows& rows, const Tensor& qkv,
                    const PagedCache& cache, const Tensor& sinks, Tensor& out) {
  constexpr OpKind kOp = OpKind::kPagedAttention;
  Device& device = out.device();
  CheckPlainFloat(kOp, "qkv", qkv);
  CheckCache(kOp, shape, rows, cache, device);
  CheckOperand(kOp, "qkv", qkv, QkvShape(shape), device, qkv.dtype());
  CheckOperand(kOp, "out", out, OutShape(shape), device, qkv.dtype());
  if (sinks.defined()) CheckOperand(kOp, "sinks", sinks, {shape.heads}, device, qkv.dtype());
  const OpScope scope(device, PagedAttentionRecord(shape, rows, qkv.dtype(), cache.dtype()));
  const Tensor scratch =
      AttentionScratch(device, PagedAttentionWorkspaceBytes(shape, rows, cache, device.executor()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::paged_attention)(shape, rows, qkv, cache, sinks, out);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  PagedAttentionCpu(device.threads(), shape, rows, F32In(qkv).data(), cache, F32In(sinks).data(),
                    F32Out(out).data(), scratch.f32());
}

}  // namespace trimtab
