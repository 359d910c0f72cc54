#include "engine/ops/cpu/elementwise/elementwise.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "engine/base/units.h"
#include "engine/device/cpu/parallel.h"
#include "engine/ops/cpu/elementwise/convert.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

// Sums are split into this many chunks at most, whose bounds depend on the length alone.
constexpr int64_t kSumChunks = 1024;

TRIMTAB_CLONES void AddSpan(int64_t n, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

TRIMTAB_CLONES void SoftCapSpan(int64_t n, const SoftCap& soft_cap, float* x) {
  const SoftCap f = soft_cap;
  if (f.cap == 0.0f) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) x[i] *= f.scale;
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] = f.cap * Tanh(x[i] * f.scale / f.cap);
}

TRIMTAB_CLONES void ClampSpan(int64_t n, float limit, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float low = x[i] < -limit ? -limit : x[i];
    y[i] = low > limit ? limit : low;
  }
}

TRIMTAB_CLONES void ClampBackwardSpan(int64_t n, float limit, const float* x, float* dx) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = x[i] < -limit || x[i] > limit ? 0.0f : dx[i];
}

// Sums run in this many lanes side by side: enough independent additions to hide their latency.
constexpr int64_t kLanes = 32;

// Elements from the one in work to the one to fetch: one stream alone does not keep the hardware's
// own prefetcher far enough ahead.
constexpr int64_t kPrefetchAhead = 512;

double Total(const double (&lanes)[kLanes]) { return std::accumulate(lanes, lanes + kLanes, 0.0); }

inline __attribute__((always_inline)) void PrefetchLanes(const float* x) {
  constexpr int64_t kLine = 64 / sizeof(float);
  for (int64_t i = 0; i < kLanes; i += kLine) __builtin_prefetch(x + kPrefetchAhead + i);
}

TRIMTAB_CLONES double SumSquaresSpan(int64_t n, const float* x) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    PrefetchLanes(x + i);
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = x[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (; i < n; ++i) lanes[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return Total(lanes);
}

TRIMTAB_CLONES double SumSpan(int64_t n, const float* x) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(x[i + lane]);
  }
  for (; i < n; ++i) lanes[0] += static_cast<double>(x[i]);
  return Total(lanes);
}

// y += x in any storage type, on the calling worker.
void AddTyped(int64_t n, DType dtype, const void* x, void* y) {
  if (dtype == DType::kF32) {
    AddSpan(n, static_cast<const float*>(x), static_cast<float*>(y));
    return;
  }
  float x_block[kConvertBlock];
  float y_block[kConvertBlock];
  for (int64_t i = 0; i < n; i += kConvertBlock) {
    const int64_t count = std::min(kConvertBlock, n - i);
    WidenSpan(dtype, count, ElementAt(dtype, x, i), x_block);
    WidenSpan(dtype, count, ElementAt(dtype, y, i), y_block);
    AddSpan(count, x_block, y_block);
    RoundSpan(dtype, count, y_block, ElementAt(dtype, y, i));
  }
}

// y += x, and then z, rounded once.
void AddBothTyped(int64_t n, DType dtype, const void* x, const void* z, void* y) {
  float x_block[kConvertBlock];
  float z_block[kConvertBlock];
  float y_block[kConvertBlock];
  for (int64_t i = 0; i < n; i += kConvertBlock) {
    const int64_t count = std::min(kConvertBlock, n - i);
    WidenSpan(dtype, count, ElementAt(dtype, x, i), x_block);
    WidenSpan(dtype, count, ElementAt(dtype, z, i), z_block);
    WidenSpan(dtype, count, ElementAt(dtype, y, i), y_block);
    AddSpan(count, x_block, y_block);
    AddSpan(count, z_block, y_block);
    RoundSpan(dtype, count, y_block, ElementAt(dtype, y, i));
  }
}

double SumSquaresTyped(int64_t n, DType dtype, const void* x) {
  if (dtype == DType::kF32) return SumSquaresSpan(n, static_cast<const float*>(x));
  float block[kConvertBlock];
  double sum = 0;
  for (int64_t i = 0; i < n; i += kConvertBlock) {
    const int64_t count = std::min(kConvertBlock, n - i);
    WidenSpan(dtype, count, ElementAt(dtype, x, i), block);
    sum += SumSquaresSpan(count, block);
  }
  return sum;
}

/// `span_sum` is called with the length and the first element of a span.
template <typename SpanSum>
double ChunkedSum(int threads, int64_t n, SpanSum span_sum) {
  std::array<double, kSumChunks> partial{};
  const int64_t chunk = std::max(kSpanGrain, RoundUp(CeilDiv(n, kSumChunks), 64));
  const int64_t chunks = CeilDiv(n, chunk);
  ParallelFor(threads, chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t start = i * chunk;
      partial[static_cast<size_t>(i)] = span_sum(std::min(chunk, n - start), start);
    }
  });
  return std::accumulate(partial.begin(), partial.begin() + chunks, 0.0);
}

}  // namespace

void AddCpu(int threads, int64_t n, DType dtype, const void* x, void* y) {
  ParallelFor(threads, n, kSpanGrain, [=](int64_t begin, int64_t end) {
    AddTyped(end - begin, dtype, ElementAt(dtype, x, begin), ElementAt(dtype, y, begin));
  });
}

void CopyColumnsCpu(int threads, int64_t rows, int64_t columns, const RowsOf<const void>& source,
                    const RowsOf<void>& destination) {
  ParallelFor(threads, rows, RowGrain(columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      ConvertCpu(/*threads=*/1, columns, source.dtype,
                 ElementAt(source.dtype, source.data, row * source.stride), destination.dtype,
                 ElementAt(destination.dtype, destination.data, row * destination.stride));
    }
  });
}

void FillCpu(int threads, int64_t n, float value, DType dtype, void* x) {
  ParallelFor(threads, n, kSpanGrain, [=](int64_t begin, int64_t end) {
    void* first = ElementAt(dtype, x, begin);
    if (dtype == DType::kF32) {
      std::fill_n(static_cast<float*>(first), end - begin, value);
    } else if (value == 0.0f) {
      std::memset(first, 0, static_cast<size_t>((end - begin) * SizeOf(dtype)));
    } else {
      uint16_t bits = 0;
      RoundSpan(dtype, 1, &value, &bits);
      std::fill_n(static_cast<uint16_t*>(first), end - begin, bits);
    }
  });
}

void AddBiasCpu(int threads, int64_t rows, int64_t columns, DType dtype, const void* bias,
                const void* addend, void* x) {
  ParallelFor(threads, rows, RowGrain(columns), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      void* y = ElementAt(dtype, x, row * columns);
      if (addend == nullptr) {
        AddTyped(columns, dtype, bias, y);
      } else {
        AddBothTyped(columns, dtype, bias, ElementAt(dtype, addend, row * columns), y);
      }
    }
  });
}

void SoftCapCpu(int threads, int64_t n, const SoftCap& soft_cap, float* x) {
  ParallelFor(threads, n, kSpanGrain,
              [=](int64_t begin, int64_t end) { SoftCapSpan(end - begin, soft_cap, x + begin); });
}

void ClampCpu(int threads, int64_t n, float limit, const float* x, float* y) {
  ParallelFor(threads, n, kSpanGrain, [=](int64_t begin, int64_t end) {
    ClampSpan(end - begin, limit, x + begin, y + begin);
  });
}

void ClampBackwardCpu(int threads, int64_t n, float limit, const float* x, float* dx) {
  ParallelFor(threads, n, kSpanGrain, [=](int64_t begin, int64_t end) {
    ClampBackwardSpan(end - begin, limit, x + begin, dx + begin);
  });
}

double SumSquaresCpu(int threads, int64_t n, DType dtype, const void* x) {
  return ChunkedSum(threads, n, [=](int64_t count, int64_t start) {
    return SumSquaresTyped(count, dtype, ElementAt(dtype, x, start));
  });
}

double SumCpu(int threads, int64_t n, const float* x) {
  return ChunkedSum(threads, n,
                    [=](int64_t count, int64_t start) { return SumSpan(count, x + start); });
}

}  // namespace trimtab
