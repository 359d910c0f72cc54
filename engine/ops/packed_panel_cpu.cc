#include "engine/ops/packed_panel_cpu.h"

#include <cstring>

namespace trimtab {
namespace {

// Numbers are read 16 rows at a time. Bytes become wider step by step: that is what compilers have
// instructions for.
constexpr int64_t kAtOnce = 16;
static_assert(kPanelRows == 2 * kAtOnce);

// Vectors as a target's registers hold them, kLanes of 32 bits. Everything is inlined into
// functions of each target, and vectors are passed by reference only.
template <int kLanes>
struct VectorsOf {
  static constexpr int kCount = static_cast<int>(kAtOnce) / kLanes;  // that hold kAtOnce
  using Float [[gnu::vector_size(kLanes * 4)]] = float;
  using I32 [[gnu::vector_size(kLanes * 4)]] = int32_t;
  using U32 [[gnu::vector_size(kLanes * 4)]] = uint32_t;
  using I16 [[gnu::vector_size(kLanes * 2)]] = int16_t;
  using U16 [[gnu::vector_size(kLanes * 2)]] = uint16_t;
};
using I8x16 [[gnu::vector_size(kAtOnce)]] = int8_t;
using U8x16 [[gnu::vector_size(kAtOnce)]] = uint8_t;
using I16x16 [[gnu::vector_size(2 * kAtOnce)]] = int16_t;
using U16x16 [[gnu::vector_size(2 * kAtOnce)]] = uint16_t;

// The bits of a float of 8 or 16 bits, shifted to where those of fp32 are, without the sign: too
// small by a factor, exactly so for subnormals too.
template <typename U32, typename Float>
[[gnu::always_inline]] inline void Rebias(const U32& magnitude, float factor, const U32& sign,
                                          Float& out) {
  Float value;
  std::memcpy(&value, &magnitude, sizeof(value));
  value *= factor;
  U32 bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits |= sign;
  std::memcpy(&out, &bits, sizeof(out));
}

// Numbers [row, row + kAtOnce) of column k of a panel, where row is 0 or kAtOnce. They are finite.
template <int kLanes, WeightFormat kFormat>
[[gnu::always_inline]] inline void Numbers(
    const void* panel, int64_t k, int64_t row,
    typename VectorsOf<kLanes>::Float (&out)[VectorsOf<kLanes>::kCount]) {
  using V = VectorsOf<kLanes>;
  const int64_t at = k * kPanelRows + row;
  if constexpr (kFormat == WeightFormat::kF32) {
    std::memcpy(&out, static_cast<const float*>(panel) + at, sizeof(out));
  } else if constexpr (kFormat == WeightFormat::kInt8) {
    I8x16 bytes;
    std::memcpy(&bytes, static_cast<const int8_t*>(panel) + at, sizeof(bytes));
    const I16x16 wide = __builtin_convertvector(bytes, I16x16);
    typename V::I16 parts[V::kCount];
    std::memcpy(&parts, &wide, sizeof(parts));
    for (int v = 0; v < V::kCount; ++v) {
      const typename V::I32 numbers = __builtin_convertvector(parts[v], typename V::I32);
      out[v] = __builtin_convertvector(numbers, typename V::Float);
    }
  } else {
    typename V::U16 parts[V::kCount];
    if constexpr (kFormat == WeightFormat::kBf16 || kFormat == WeightFormat::kF16) {
      std::memcpy(&parts, static_cast<const uint16_t*>(panel) + at, sizeof(parts));
    } else {
      const bool pairs = kFormat == WeightFormat::kInt4;
      U8x16 bytes;
      std::memcpy(&bytes, static_cast<const uint8_t*>(panel) + (pairs ? k * kAtOnce : at),
                  sizeof(bytes));
      const U16x16 wide = __builtin_convertvector(bytes, U16x16);
      std::memcpy(&parts, &wide, sizeof(parts));
    }
    for (int v = 0; v < V::kCount; ++v) {
      const typename V::U32 bits = __builtin_convertvector(parts[v], typename V::U32);
      if constexpr (kFormat == WeightFormat::kBf16) {
        const typename V::U32 whole = bits << 16;
        std::memcpy(&out[v], &whole, sizeof(whole));
      } else if constexpr (kFormat == WeightFormat::kF16) {
        Rebias<typename V::U32>((bits & 0x7fffu) << 13, 0x1p112f, (bits & 0x8000u) << 16, out[v]);
      } else if constexpr (kFormat == WeightFormat::kF8) {
        Rebias<typename V::U32>((bits & 0x7fu) << 20, 0x1p120f, (bits & 0x80u) << 24, out[v]);
      } else {
        // Moved to the top and back, a half of the byte keeps its sign.
        const typename V::U32 top = bits << (row == 0 ? 28 : 24);
        typename V::I32 number;
        std::memcpy(&number, &top, sizeof(number));
        number >>= 28;
        out[v] = __builtin_convertvector(number, typename V::Float);
      }
    }
  }
}

template <int kLanes, WeightFormat kFormat>
[[gnu::always_inline]] inline void UnpackPanel(const void* panel, int64_t first, int64_t columns,
                                               float* block) {
  for (int64_t k = first; k < first + columns; ++k) {
    for (int64_t row = 0; row < kPanelRows; row += kAtOnce, block += kAtOnce) {
      typename VectorsOf<kLanes>::Float numbers[VectorsOf<kLanes>::kCount];
      Numbers<kLanes, kFormat>(panel, k, row, numbers);
      std::memcpy(block, &numbers, sizeof(numbers));
    }
  }
}

template <int kLanes, WeightFormat kFormat>
[[gnu::always_inline]] inline void MultiplyPanel(const void* panel, int64_t first, int64_t columns,
                                                 const float* x, float* sums) {
  using V = VectorsOf<kLanes>;
  typename V::Float low[V::kCount];
  typename V::Float high[V::kCount];
  std::memcpy(&low, sums, sizeof(low));
  std::memcpy(&high, sums + kAtOnce, sizeof(high));
  for (int64_t k = 0; k < columns; ++k) {
    typename V::Float numbers[V::kCount];
    Numbers<kLanes, kFormat>(panel, first + k, 0, numbers);
    for (int v = 0; v < V::kCount; ++v) low[v] += x[k] * numbers[v];
    Numbers<kLanes, kFormat>(panel, first + k, kAtOnce, numbers);
    for (int v = 0; v < V::kCount; ++v) high[v] += x[k] * numbers[v];
  }
  std::memcpy(sums, &low, sizeof(low));
  std::memcpy(sums + kAtOnce, &high, sizeof(high));
}

template <int kLanes>
[[gnu::always_inline]] inline void UnpackOf(WeightFormat format, const void* panel, int64_t first,
                                            int64_t columns, float* block) {
  switch (format) {
    case WeightFormat::kF32:
      return UnpackPanel<kLanes, WeightFormat::kF32>(panel, first, columns, block);
    case WeightFormat::kBf16:
      return UnpackPanel<kLanes, WeightFormat::kBf16>(panel, first, columns, block);
    case WeightFormat::kF16:
      return UnpackPanel<kLanes, WeightFormat::kF16>(panel, first, columns, block);
    case WeightFormat::kF8:
      return UnpackPanel<kLanes, WeightFormat::kF8>(panel, first, columns, block);
    case WeightFormat::kInt8:
      return UnpackPanel<kLanes, WeightFormat::kInt8>(panel, first, columns, block);
    case WeightFormat::kInt4:
      return UnpackPanel<kLanes, WeightFormat::kInt4>(panel, first, columns, block);
  }
}

template <int kLanes>
[[gnu::always_inline]] inline void MultiplyOf(WeightFormat format, const void* panel, int64_t first,
                                              int64_t columns, const float* x, float* sums) {
  switch (format) {
    case WeightFormat::kF32:
      return MultiplyPanel<kLanes, WeightFormat::kF32>(panel, first, columns, x, sums);
    case WeightFormat::kBf16:
      return MultiplyPanel<kLanes, WeightFormat::kBf16>(panel, first, columns, x, sums);
    case WeightFormat::kF16:
      return MultiplyPanel<kLanes, WeightFormat::kF16>(panel, first, columns, x, sums);
    case WeightFormat::kF8:
      return MultiplyPanel<kLanes, WeightFormat::kF8>(panel, first, columns, x, sums);
    case WeightFormat::kInt8:
      return MultiplyPanel<kLanes, WeightFormat::kInt8>(panel, first, columns, x, sums);
    case WeightFormat::kInt4:
      return MultiplyPanel<kLanes, WeightFormat::kInt4>(panel, first, columns, x, sums);
  }
}

struct PanelFunctions {
  decltype(&UnpackNumbers) unpack;
  decltype(&MultiplyRow) multiply;
};

void UnpackPlain(WeightFormat format, const void* panel, int64_t first, int64_t columns,
                 float* block) {
  UnpackOf<4>(format, panel, first, columns, block);
}
void MultiplyPlain(WeightFormat format, const void* panel, int64_t first, int64_t columns,
                   const float* x, float* sums) {
  MultiplyOf<4>(format, panel, first, columns, x, sums);
}

#if defined(__x86_64__)
[[gnu::target("arch=x86-64-v3")]] void UnpackV3(WeightFormat format, const void* panel,
                                                int64_t first, int64_t columns, float* block) {
  UnpackOf<8>(format, panel, first, columns, block);
}
[[gnu::target("arch=x86-64-v3")]] void MultiplyV3(WeightFormat format, const void* panel,
                                                  int64_t first, int64_t columns, const float* x,
                                                  float* sums) {
  MultiplyOf<8>(format, panel, first, columns, x, sums);
}
[[gnu::target("arch=x86-64-v4")]] void UnpackV4(WeightFormat format, const void* panel,
                                                int64_t first, int64_t columns, float* block) {
  UnpackOf<16>(format, panel, first, columns, block);
}
[[gnu::target("arch=x86-64-v4")]] void MultiplyV4(WeightFormat format, const void* panel,
                                                  int64_t first, int64_t columns, const float* x,
                                                  float* sums) {
  MultiplyOf<16>(format, panel, first, columns, x, sums);
}

PanelFunctions FindFunctions() {
  if (__builtin_cpu_supports("x86-64-v4") != 0) return {UnpackV4, MultiplyV4};
  if (__builtin_cpu_supports("x86-64-v3") != 0) return {UnpackV3, MultiplyV3};
  return {UnpackPlain, MultiplyPlain};
}
#else
PanelFunctions FindFunctions() { return {UnpackPlain, MultiplyPlain}; }
#endif

const PanelFunctions& Functions() {
  static const PanelFunctions functions = FindFunctions();
  return functions;
}

}  // namespace

void UnpackNumbers(WeightFormat format, const void* panel, int64_t first, int64_t columns,
                   float* block) {
  Functions().unpack(format, panel, first, columns, block);
}

void MultiplyRow(WeightFormat format, const void* panel, int64_t first, int64_t columns,
                 const float* x, float* sums) {
  Functions().multiply(format, panel, first, columns, x, sums);
}

}  // namespace trimtab
