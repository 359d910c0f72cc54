#include "engine/ops/attention/paged_attention.h"

#include <algorithm>

#include "engine/base/units.h"
#include "engine/ops/attention/attention_operands.h"
#include "engine/ops/cpu/attention/paged_attention.h"
#include "engine/ops/cpu/attention/store_kv.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/elementwise/widen.h"

namespace trimtab {
namespace {

/// Bytes of the entries of one token.
int64_t EntryBytes(const AttentionShape& s, DType entries) {
  return s.values_in_keys ? KeyCacheBytesPerToken(s.kv_heads, s.head_size, entries)
                          : PagedCacheBytesPerToken(s.kv_heads, s.head_size, entries);
}

void CheckCache(OpKind op, const AttentionShape& s, const PagedCache& cache, const Device& device) {
  CheckAttention(op, s);
  const RowLayout& rows = s.rows;
  TRIMTAB_ASSERT(rows.paged != nullptr, "{}: rows without block tables", Name(op));
  const Tensor& blocks_of = rows.paged->blocks;
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
  CheckOperand(op, "segment_of", rows.paged->segment_of, {s.tokens()}, device, DType::kI32);
  const auto segments = std::ssize(rows.paged->segments);
  CheckMatrix(op, "blocks", blocks_of);
  CheckOperand(op, "blocks", blocks_of, {segments, blocks_of.dim(1)}, device, DType::kI32);
  TRIMTAB_ASSERT(rows.end_position() <= blocks_of.dim(1) * size,
                 "{}: a position {} in {} blocks of {}", Name(op), rows.end_position() - 1,
                 blocks_of.dim(1), size);
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

OpRecord PagedAttentionRecord(const AttentionShape& s, DType dtype, DType entries) {
  return {.kind = OpKind::kPagedAttention,
          .dtype = dtype,
          .dims = {s.tokens(), s.heads, s.head_size, s.kv_heads},
          .flops = 2 * s.heads * ForwardColumns(s) * s.rows.paged->visible_scores(s.scores),
          .bytes = s.tokens() * (s.query_size() + s.out_size()) * SizeOf(dtype) +
                   s.rows.paged->visible_keys(s.scores) * EntryBytes(s, entries)};
}

int64_t PagedAttentionWorkspaceBytes(const AttentionShape& shape, const PagedCache& cache,
                                     const Executor& executor) {
  if (executor.kind == DeviceKind::kCuda) return 0;
  return executor.threads * PagedAttentionScratchCpu(shape, cache) * SizeOf(DType::kF32);
}

void StoreKv(const AttentionShape& shape, const Tensor& qkv, const PagedCache& cache) {
  constexpr OpKind kOp = OpKind::kStoreKv;
  Device& device = qkv.device();
  CheckPlainFloat(kOp, "qkv", qkv);
  CheckCache(kOp, shape, cache, device);
  CheckOperand(kOp, "qkv", qkv, QkvShape(shape), device, qkv.dtype());
  const OpScope scope(device, StoreKvRecord(shape, qkv.dtype(), cache.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::store_kv)(shape, qkv, cache);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  StoreKvCpu(device.threads(), shape, F32In(qkv).data(), cache);
}

void PagedAttention(const AttentionShape& shape, const Tensor& qkv, const PagedCache& cache,
                    const Tensor& sinks, Tensor& out) {
  constexpr OpKind kOp = OpKind::kPagedAttention;
  Device& device = out.device();
  CheckPlainFloat(kOp, "qkv", qkv);
  CheckCache(kOp, shape, cache, device);
  CheckOperand(kOp, "qkv", qkv, QkvShape(shape), device, qkv.dtype());
  CheckOperand(kOp, "out", out, OutShape(shape), device, qkv.dtype());
  if (sinks.defined()) CheckOperand(kOp, "sinks", sinks, {shape.heads}, device, qkv.dtype());
  const OpScope scope(device, PagedAttentionRecord(shape, qkv.dtype(), cache.dtype()));
  const Tensor scratch =
      AttentionScratch(device, PagedAttentionWorkspaceBytes(shape, cache, device.executor()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::paged_attention)(shape, qkv, cache, sinks, out);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  PagedAttentionCpu(device.threads(), shape, F32In(qkv).data(), cache, F32In(sinks).data(),
                    F32Out(out).data(), scratch.f32());
}

}  // namespace trimtab
