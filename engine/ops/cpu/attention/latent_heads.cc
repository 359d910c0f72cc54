#include "engine/ops/cpu/attention/latent_heads.h"

#include <algorithm>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/cpu/attention/rope.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

// Where the heads of one token lie.
struct TokenHeads {
  int64_t size;    // D
  int64_t rotary;  // R
  int64_t fixed;   // D - R
  int64_t value;   // Dv
  int64_t heads;
  int64_t joined;  // columns of key_value per head

  TokenHeads(const AttentionShape& s, const Rotary& r)
      : size(s.head_size),
        rotary(r.dims),
        fixed(s.head_size - r.dims),
        value(s.value_size()),
        heads(s.heads),
        joined(fixed + value) {}

  int64_t key_at(int64_t head) const { return (heads + head) * size; }
  int64_t value_at(int64_t head) const { return 2 * heads * size + head * value; }
};

void Join(const TokenHeads& at, const TokenRotation& rotation, const float* query,
          const float* key_value, const float* key_rotary, float* qkv) {
  std::copy_n(query, at.heads * at.size, qkv);
  for (int64_t head = 0; head < at.heads; ++head) {
    rotation.Turn(qkv + head * at.size + at.fixed);
    const float* from = key_value + head * at.joined;
    std::copy_n(from, at.fixed, qkv + at.key_at(head));
    std::copy_n(from + at.fixed, at.value, qkv + at.value_at(head));
  }
  float* first = qkv + at.key_at(0) + at.fixed;
  std::copy_n(key_rotary, at.rotary, first);
  rotation.Turn(first);
  for (int64_t head = 1; head < at.heads; ++head) {
    std::copy_n(first, at.rotary, qkv + at.key_at(head) + at.fixed);
  }
}

TRIMTAB_CLONES void AddRow(int64_t n, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

void JoinBackward(const TokenHeads& at, const TokenRotation& rotation, const float* dqkv,
                  float* dquery, float* dkey_value, float* dkey_rotary) {
  std::copy_n(dqkv, at.heads * at.size, dquery);
  std::fill_n(dkey_rotary, at.rotary, 0.0f);
  for (int64_t head = 0; head < at.heads; ++head) {
    rotation.Turn(dquery + head * at.size + at.fixed);
    float* to = dkey_value + head * at.joined;
    std::copy_n(dqkv + at.key_at(head), at.fixed, to);
    std::copy_n(dqkv + at.value_at(head), at.value, to + at.fixed);
    AddRow(at.rotary, dqkv + at.key_at(head) + at.fixed, dkey_rotary);
  }
  rotation.Turn(dkey_rotary);
}

}  // namespace

void JoinHeadsCpu(int threads, const AttentionShape& shape, const Rotary& rotary,
                  const float* query, const float* key_value, const float* key_rotary, float* qkv) {
  const TokenHeads at(shape, rotary);
  const RowPositions positions = shape.rows.view();
  const RotaryFrequencies frequencies = FrequenciesOf(rotary, shape.head_size, /*inverse=*/false);
  ParallelFor(threads, shape.tokens(), RowGrain(shape.qkv_size()), [&](int64_t begin, int64_t end) {
    TokenRotation rotation(rotary, frequencies, shape.head_size);
    for (int64_t token = begin; token < end; ++token) {
      rotation.MoveTo(positions.of(token));
      Join(at, rotation, query + token * shape.query_size(),
           key_value + token * at.heads * at.joined, key_rotary + token * at.rotary,
           qkv + token * shape.qkv_size());
    }
  });
}

void JoinHeadsBackwardCpu(int threads, const AttentionShape& shape, const Rotary& rotary,
                          const float* dqkv, float* dquery, float* dkey_value, float* dkey_rotary) {
  const TokenHeads at(shape, rotary);
  const RowPositions positions = shape.rows.view();
  const RotaryFrequencies frequencies = FrequenciesOf(rotary, shape.head_size, /*inverse=*/true);
  ParallelFor(threads, shape.tokens(), RowGrain(shape.qkv_size()), [&](int64_t begin, int64_t end) {
    TokenRotation rotation(rotary, frequencies, shape.head_size);
    for (int64_t token = begin; token < end; ++token) {
      rotation.MoveTo(positions.of(token));
      JoinBackward(at, rotation, dqkv + token * shape.qkv_size(),
                   dquery + token * shape.query_size(), dkey_value + token * at.heads * at.joined,
                   dkey_rotary + token * at.rotary);
    }
  });
}

}  // namespace trimtab
