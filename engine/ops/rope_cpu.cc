#include <array>
#include <cmath>

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

void RopeCpu(int threads, const AttentionShape& shape, const Positions& positions, double theta,
             bool inverse, float* qkv) {
  const int64_t pairs = shape.head_size / 2;
  std::array<double, kMaxPairs> frequency;
  const double direction = inverse ? -1.0 : 1.0;
  for (int64_t i = 0; i < pairs; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(shape.head_size);
    frequency[static_cast<size_t>(i)] = direction * std::pow(theta, exponent);
  }
  const int64_t width = shape.qkv_size();
  ParallelFor(threads, shape.tokens(), RowGrain(width), [&](int64_t begin, int64_t end) {
    float sine[kMaxPairs];
    float cosine[kMaxPairs];
    for (int64_t token = begin; token < end; ++token) {
      const auto position = static_cast<double>(positions.of(token % shape.sequence));
      SinCosRow(pairs, position, frequency.data(), sine, cosine);
      for (int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
        float* low = qkv + token * width + head * shape.head_size;
        RotateHead(pairs, sine, cosine, low, low + pairs);
      }
    }
  });
}

}  // namespace trimtab
