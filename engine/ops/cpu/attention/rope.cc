#include "engine/ops/cpu/attention/rope.h"

#include "engine/device/cpu/parallel.h"
#include "engine/ops/cpu/attention/attention.h"
#include "engine/ops/kernel.h"
#include "engine/ops/math.h"

namespace trimtab {
namespace {

TRIMTAB_CLONES void SinCosRow(int64_t n, double position, const double* frequency, float* sine,
                              float* cosine) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) SinCos(position * frequency[i], sine[i], cosine[i]);
}

TRIMTAB_CLONES void ScaleRow(int64_t n, float factor, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// Rotates the pairs (x[2 i], x[2 i + 1]) of one head.
TRIMTAB_CLONES void RotateInterleaved(int64_t n, const float* sine, const float* cosine, float* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = a * cosine[i] - b * sine[i];
    x[2 * i + 1] = b * cosine[i] + a * sine[i];
  }
}

// Rotates the pairs (low[i], high[i]) of one head.
TRIMTAB_CLONES void RotateHead(int64_t n, const float* sine, const float* cosine, float* low,
                               float* high) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float a = low[i];
    const float b = high[i];
    low[i] = a * cosine[i] - b * sine[i];
    high[i] = b * cosine[i] + a * sine[i];
  }
}

}  // namespace

void TokenRotation::MoveTo(int64_t position) {
  SinCosRow(pairs_, static_cast<double>(position), frequencies_.per_position.data(), sine_,
            cosine_);
  if (frequencies_.factor == 1.0f) return;
  ScaleRow(pairs_, frequencies_.factor, sine_);
  ScaleRow(pairs_, frequencies_.factor, cosine_);
}

void TokenRotation::Turn(float* x) const {
  if (interleaved_) {
    RotateInterleaved(pairs_, sine_, cosine_, x);
  } else {
    RotateHead(pairs_, sine_, cosine_, x, x + pairs_);
  }
}

void RopeCpu(int threads, const AttentionShape& shape, const Rotary& rotary, bool inverse,
             float* qkv) {
  const RowPositions positions = shape.rows.view();
  const RotaryFrequencies frequencies = FrequenciesOf(rotary, shape.head_size, inverse);
  const int64_t width = shape.qkv_size();
  ParallelFor(threads, shape.tokens(), RowGrain(width), [&](int64_t begin, int64_t end) {
    TokenRotation rotation(rotary, frequencies, shape.head_size);
    for (int64_t token = begin; token < end; ++token) {
      rotation.MoveTo(positions.of(token));
      for (int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
        rotation.Turn(qkv + token * width + head * shape.head_size);
      }
    }
  });
}

}  // namespace trimtab
