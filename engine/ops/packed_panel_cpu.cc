#include "engine/ops/packed_panel_cpu.h"

#include <algorithm>
#include <cstring>

namespace trimtab {
namespace {

// Words that are asked of memory ahead of those that are multiplied: what caches foresee ends with
// each page.
constexpr int64_t kWordsAhead = 12 * kPanelRows;
constexpr int64_t kLineWords = 16;

// A row of words as a target's registers hold it, kLanes each. Everything is inlined into functions
// of each target, and vectors are passed by reference only.
template <int kLanes>
struct VectorsOf {
  static constexpr int kCount = static_cast<int>(kPanelRows) / kLanes;
  using Float [[gnu::vector_size(kLanes * 4)]] = float;
  using I32 [[gnu::vector_size(kLanes * 4)]] = int32_t;
  using U32 [[gnu::vector_size(kLanes * 4)]] = uint32_t;
};

// A float of 8 or 16 bits, of which `magnitude` is shifted to where that of fp32 is: too small by a
// factor, exactly so for subnormals too. The sign is the top bit of `bits`.
template <typename U32, typename Float>
[[gnu::always_inline]] inline void Rebias(const U32& magnitude, float factor, const U32& bits,
                                          Float& out) {
  Float value;
  std::memcpy(&value, &magnitude, sizeof(value));
  value *= factor;
  U32 whole;
  std::memcpy(&whole, &value, sizeof(whole));
  whole |= bits & 0x80000000u;
  std::memcpy(&out, &whole, sizeof(out));
}

// What Numbers gives, times this, is the number: 4 bits at the top of an integer stay there.
template <WeightFormat kFormat>
constexpr float kUnit = kFormat == WeightFormat::kInt4 ? 0x1p-28f : 1.0f;

// The numbers that words have for the column `slot` of theirs, over kUnit. Shifted up, a number has
// its sign on top; shifted down, it is an integer again.
template <int kLanes, WeightFormat kFormat>
[[gnu::always_inline]] inline void Numbers(const typename VectorsOf<kLanes>::U32& words, int slot,
                                           typename VectorsOf<kLanes>::Float& out) {
  using U32 = typename VectorsOf<kLanes>::U32;
  using I32 = typename VectorsOf<kLanes>::I32;
  constexpr int kBits = 32 / static_cast<int>(WordColumns(kFormat));
  const U32 top = words << (32 - kBits - kBits * slot);
  if constexpr (kFormat == WeightFormat::kF32) {
    std::memcpy(&out, &words, sizeof(out));
  } else if constexpr (kFormat == WeightFormat::kBf16) {
    const U32 whole = top & 0xffff0000u;
    std::memcpy(&out, &whole, sizeof(out));
  } else if constexpr (kFormat == WeightFormat::kF16) {
    Rebias<U32>((top >> 3) & 0x0fffe000u, 0x1p112f, top, out);
  } else if constexpr (kFormat == WeightFormat::kF8) {
    Rebias<U32>((top >> 4) & 0x07f00000u, 0x1p120f, top, out);
  } else {
    I32 number;
    if constexpr (kFormat == WeightFormat::kInt4) {
      const U32 alone = top & 0xf0000000u;
      std::memcpy(&number, &alone, sizeof(number));
    } else {
      std::memcpy(&number, &top, sizeof(number));
      number >>= 32 - kBits;
    }
    out = __builtin_convertvector(number, typename VectorsOf<kLanes>::Float);
  }
}

// Loops over a row's vectors are unrolled, so that these stay in registers.
#define TRIMTAB_UNROLL _Pragma("GCC unroll 8")

template <int kLanes, WeightFormat kFormat>
[[gnu::always_inline]] inline void UnpackPanel(const uint32_t* words, int64_t columns,
                                               float* block) {
  using V = VectorsOf<kLanes>;
  constexpr int64_t kSlots = WordColumns(kFormat);
  for (int64_t k = 0; k < columns; k += kSlots, words += kPanelRows) {
    const int slots = static_cast<int>(std::min(kSlots, columns - k));
    for (int slot = 0; slot < slots; ++slot, block += kPanelRows) {
      TRIMTAB_UNROLL for (int v = 0; v < V::kCount; ++v) {
        typename V::U32 row;
        typename V::Float numbers;
        std::memcpy(&row, words + v * kLanes, sizeof(row));
        Numbers<kLanes, kFormat>(row, slot, numbers);
        if constexpr (kUnit<kFormat> != 1.0f) numbers *= kUnit<kFormat>;
        std::memcpy(block + v * kLanes, &numbers, sizeof(numbers));
      }
    }
  }
}

// Adds what the columns of one row of words contribute, `slots` of them.
template <int kLanes, WeightFormat kFormat>
[[gnu::always_inline]] inline void AddWords(
    const uint32_t* words, int slots, const float* x,
    typename VectorsOf<kLanes>::Float (&sums)[VectorsOf<kLanes>::kCount]) {
  using V = VectorsOf<kLanes>;
  TRIMTAB_UNROLL for (int slot = 0; slot < slots; ++slot) {
    TRIMTAB_UNROLL for (int v = 0; v < V::kCount; ++v) {
      typename V::U32 row;
      typename V::Float numbers;
      std::memcpy(&row, words + v * kLanes, sizeof(row));
      Numbers<kLanes, kFormat>(row, slot, numbers);
      sums[v] += x[slot] * numbers;
    }
  }
}

template <int kLanes, WeightFormat kFormat>
[[gnu::always_inline]] inline void MultiplyPanel(const uint32_t* words, const float* scales,
                                                 int64_t columns, const float* x, float* y) {
  using V = VectorsOf<kLanes>;
  constexpr int kSlots = static_cast<int>(WordColumns(kFormat));
  constexpr bool kByGroup = kFormat == WeightFormat::kInt4;
  const int64_t step = kByGroup ? kInt4Group : columns;
  typename V::Float results[V::kCount] = {};
  for (int64_t begin = 0; begin < columns; begin += step) {
    typename V::Float sums[V::kCount] = {};
    int64_t left = step;
    for (; left >= kSlots; left -= kSlots, words += kPanelRows, x += kSlots) {
      for (int64_t line = 0; line < kPanelRows; line += kLineWords) {
        __builtin_prefetch(words + kWordsAhead + line);
      }
      AddWords<kLanes, kFormat>(words, kSlots, x, sums);
    }
    if (left > 0) AddWords<kLanes, kFormat>(words, static_cast<int>(left), x, sums);
    TRIMTAB_UNROLL for (int v = 0; v < V::kCount; ++v) {
      typename V::Float factor = {};
      if (scales == nullptr) {
        results[v] = sums[v];
        continue;
      }
      std::memcpy(&factor, scales + v * kLanes, sizeof(factor));
      if constexpr (kUnit<kFormat> != 1.0f) factor *= kUnit<kFormat>;
      results[v] += sums[v] * factor;
    }
    if (kByGroup) scales += kPanelRows;
  }
  std::memcpy(y, &results, sizeof(results));
}

// Calls Run<kLanes, format>(...).
#define TRIMTAB_DISPATCH_FORMAT(Run, ...)                   \
  switch (format) {                                         \
    case WeightFormat::kF32:                                \
      return Run<kLanes, WeightFormat::kF32>(__VA_ARGS__);  \
    case WeightFormat::kBf16:                               \
      return Run<kLanes, WeightFormat::kBf16>(__VA_ARGS__); \
    case WeightFormat::kF16:                                \
      return Run<kLanes, WeightFormat::kF16>(__VA_ARGS__);  \
    case WeightFormat::kF8:                                 \
      return Run<kLanes, WeightFormat::kF8>(__VA_ARGS__);   \
    case WeightFormat::kInt8:                               \
      return Run<kLanes, WeightFormat::kInt8>(__VA_ARGS__); \
    case WeightFormat::kInt4:                               \
      return Run<kLanes, WeightFormat::kInt4>(__VA_ARGS__); \
  }

template <int kLanes>
[[gnu::always_inline]] inline void UnpackOf(WeightFormat format, const uint32_t* words,
                                            int64_t columns, float* block) {
  TRIMTAB_DISPATCH_FORMAT(UnpackPanel, words, columns, block)
}

template <int kLanes>
[[gnu::always_inline]] inline void MultiplyOf(WeightFormat format, const uint32_t* words,
                                              const float* scales, int64_t columns, const float* x,
                                              float* y) {
  TRIMTAB_DISPATCH_FORMAT(MultiplyPanel, words, scales, columns, x, y)
}

struct PanelFunctions {
  void (*unpack)(WeightFormat format, const uint32_t* words, int64_t columns, float* block);
  void (*multiply)(WeightFormat format, const uint32_t* words, const float* scales, int64_t columns,
                   const float* x, float* y);
};

void UnpackPlain(WeightFormat format, const uint32_t* words, int64_t columns, float* block) {
  UnpackOf<4>(format, words, columns, block);
}
void MultiplyPlain(WeightFormat format, const uint32_t* words, const float* scales, int64_t columns,
                   const float* x, float* y) {
  MultiplyOf<4>(format, words, scales, columns, x, y);
}

#if defined(__x86_64__)
[[gnu::target("arch=x86-64-v3")]] void UnpackV3(WeightFormat format, const uint32_t* words,
                                                int64_t columns, float* block) {
  UnpackOf<8>(format, words, columns, block);
}
[[gnu::target("arch=x86-64-v3")]] void MultiplyV3(WeightFormat format, const uint32_t* words,
                                                  const float* scales, int64_t columns,
                                                  const float* x, float* y) {
  MultiplyOf<8>(format, words, scales, columns, x, y);
}
[[gnu::target("arch=x86-64-v4")]] void UnpackV4(WeightFormat format, const uint32_t* words,
                                                int64_t columns, float* block) {
  UnpackOf<16>(format, words, columns, block);
}
[[gnu::target("arch=x86-64-v4")]] void MultiplyV4(WeightFormat format, const uint32_t* words,
                                                  const float* scales, int64_t columns,
                                                  const float* x, float* y) {
  MultiplyOf<16>(format, words, scales, columns, x, y);
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
  const auto* words = static_cast<const uint32_t*>(panel);
  Functions().unpack(format, words + first / WordColumns(format) * kPanelRows, columns, block);
}

void UnpackRow(const PackedMatrix& packed, int64_t row, float* values) {
  const int64_t words = packed.values.dim(2);
  const int64_t slots = WordColumns(packed.format);
  const int64_t panel = row / kPanelRows;
  const int64_t lane = row % kPanelRows;
  const auto* word = static_cast<const uint32_t*>(packed.values.raw()) + panel * words * kPanelRows;
  const int64_t groups = packed.groups();
  const float* scales =
      groups > 0 ? packed.scales.f32() + panel * groups * kPanelRows + lane : nullptr;
  const int64_t group_columns = groups > 0 ? packed.in / groups : packed.in;
  for (int64_t k = 0; k < packed.in; k += slots, word += kPanelRows) {
    uint32_t lanes[kPanelRows] = {word[lane]};
    float numbers[8 * kPanelRows];
    const int64_t count = std::min(slots, packed.in - k);
    Functions().unpack(packed.format, lanes, count, numbers);
    for (int64_t i = 0; i < count; ++i) {
      const float scale = groups > 0 ? scales[(k + i) / group_columns * kPanelRows] : 1.0f;
      values[k + i] = numbers[i * kPanelRows] * scale;
    }
  }
  if (!packed.input_scales.defined()) return;
  for (int64_t k = 0; k < packed.in; ++k) values[k] *= packed.input_scales.f32()[k];
}

void MultiplyRow(WeightFormat format, const void* panel, const float* scales, int64_t columns,
                 const float* x, float* y) {
  Functions().multiply(format, static_cast<const uint32_t*>(panel), scales, columns, x, y);
}

}  // namespace trimtab
