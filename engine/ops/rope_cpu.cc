#include "engine/device/cpu/parallel.h"
#include "engine/ops/attention_cpu.h"
#include "engine/ops/kernel.h"
#include "engine/ops/math.h"

namespace trimtab {
namespace {

constexpr int64_t kMaxPairs = kMaxRopeHeadSize / 2;

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

void RopeCpu(int threads, const AttentionShape& shape, const Positions& positions,
             const Rotary& rotary, bool inverse, float* qkv) {
  const int64_t pairs = rotary.pairs(shape.head_size);
  const RotaryFrequencies frequencies = FrequenciesOf(rotary, shape.head_size, inverse);
  const int64_t width = shape.qkv_size();
  ParallelFor(threads, shape.tokens(), RowGrain(width), [&](int64_t begin, int64_t end) {
    float sine[kMaxPairs];
    float cosine[kMaxPairs];
    for (int64_t token = begin; token < end; ++token) {
      const auto position = static_cast<double>(positions.of(token % shape.sequence));
      SinCosRow(pairs, position, frequencies.per_position.data(), sine, cosine);
      if (frequencies.factor != 1.0f) {
        ScaleRow(pairs, frequencies.factor, sine);
        ScaleRow(pairs, frequencies.factor, cosine);
      }
      for (int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
        float* x = qkv + token * width + head * shape.head_size;
        if (rotary.interleaved) {
          RotateInterleaved(pairs, sine, cosine, x);
        } else {
          RotateHead(pairs, sine, cosine, x, x + pairs);
        }
      }
    }
  });
}

}  // namespace trimtab
