#include "engine/ops/packed_panel_cpu.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/ops/kernel.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TRIMTAB_HAS_PSHUFB 1
#include <immintrin.h>  // declares the builtin; only functions for AVX2 use it
#endif

namespace trimtab {
namespace {

// Words that are asked of memory ahead of those that are multiplied: what caches foresee ends with
// each page.
constexpr int64_t kWordsAhead = 24 * kPanelRows;
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

// A factor times `unit`, less `offset`, is the number.
struct FactorRule {
  float unit = 1;
  float offset = 0;
};

constexpr float PowerOfTwo(int exponent) {
  float power = 1;
  for (; exponent < 0; ++exponent) power /= 2;
  return power;
}

constexpr std::array<FactorRule, 8> RulesOf(WeightFormat format) {
  std::array<FactorRule, 8> rules;
  for (int slot = 0; slot < 8; ++slot) {
    FactorRule& rule = rules[static_cast<size_t>(slot)];
    if (format == WeightFormat::kInt8) rule.unit = 0x1p-24f;
    if (format == WeightFormat::kInt4) rule = {PowerOfTwo(-4 * slot), slot < 7 ? 8.0f : 0.0f};
  }
  return rules;
}

// Flipped in a word of int4: makes all numbers but the one on top, which keeps its sign, larger by
// 8 and so positive.
constexpr uint32_t kInt4Offset = 0x08888888u;

#ifdef TRIMTAB_HAS_PSHUFB
// For each slot, which byte of a word goes where.
constexpr auto kTopByte = [] {
  std::array<std::array<char, 32>, 4> picks{};
  for (size_t slot = 0; slot < picks.size(); ++slot) {
    for (size_t i = 0; i < picks[slot].size(); ++i) {
      picks[slot][i] = static_cast<char>(i % 4 == 3 ? i % 16 - 3 + slot : 0x80);  // 0x80: a zero
    }
  }
  return picks;
}();
#endif

// Byte `slot` of each word on top of it, zeros below.
template <int kLanes>
[[gnu::always_inline]] inline void TopByte(const typename VectorsOf<kLanes>::U32& words, int slot,
                                           typename VectorsOf<kLanes>::U32& out) {
#ifdef TRIMTAB_HAS_PSHUFB
  if constexpr (kLanes == 8) {
    using Bytes [[gnu::vector_size(32)]] = char;
    Bytes bytes;
    Bytes picks;
    std::memcpy(&bytes, &words, sizeof(bytes));
    std::memcpy(&picks, kTopByte[static_cast<size_t>(slot)].data(), sizeof(picks));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"  // of a call that only exists where it is inlined
    bytes = __builtin_ia32_pshufb256(bytes, picks);
#pragma GCC diagnostic pop
    std::memcpy(&out, &bytes, sizeof(out));
    return;
  }
#endif
  out = (words << (24 - 8 * slot)) & 0xff000000u;
}

// The factors that words have for the column `slot` of theirs. Integers stay where few operations
// bring them: those of 8 bits on top, those of 4 where they are.
template <int kLanes, WeightFormat kFormat>
[[gnu::always_inline]] inline void Factors(const typename VectorsOf<kLanes>::U32& words, int slot,
                                           typename VectorsOf<kLanes>::Float& out) {
  using U32 = typename VectorsOf<kLanes>::U32;
  using I32 = typename VectorsOf<kLanes>::I32;
  if constexpr (kFormat == WeightFormat::kF32) {
    std::memcpy(&out, &words, sizeof(out));
  } else if constexpr (kFormat == WeightFormat::kInt8 || kFormat == WeightFormat::kInt4) {
    U32 bits;
    if constexpr (kFormat == WeightFormat::kInt8) {
      TopByte<kLanes>(words, slot, bits);
    } else {
      bits = words & (0xfu << (4 * slot));
    }
    I32 integer;
    std::memcpy(&integer, &bits, sizeof(integer));
    out = __builtin_convertvector(integer, typename VectorsOf<kLanes>::Float);
  } else {
    constexpr int kBits = 32 / static_cast<int>(WordColumns(kFormat));
    const U32 top = words << (32 - kBits - kBits * slot);
    if constexpr (kFormat == WeightFormat::kBf16) {
      const U32 whole = top & 0xffff0000u;
      std::memcpy(&out, &whole, sizeof(out));
    } else if constexpr (kFormat == WeightFormat::kF16) {
      Rebias<U32>((top >> 3) & 0x0fffe000u, 0x1p112f, top, out);
    } else {
      Rebias<U32>((top >> 4) & 0x07f00000u, 0x1p120f, top, out);
    }
  }
}

// A row of words as Factors takes them.
template <int kLanes, WeightFormat kFormat>
[[gnu::always_inline]] inline void LoadWords(const uint32_t* from,
                                             typename VectorsOf<kLanes>::U32& words) {
  std::memcpy(&words, from, sizeof(words));
  if constexpr (kFormat == WeightFormat::kInt4) words ^= kInt4Offset;
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
        typename V::Float factors;
        LoadWords<kLanes, kFormat>(words + v * kLanes, row);
        Factors<kLanes, kFormat>(row, slot, factors);
        std::memcpy(block + v * kLanes, &factors, sizeof(factors));
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
  typename V::U32 rows[V::kCount];
  TRIMTAB_UNROLL for (int v = 0; v < V::kCount; ++v) {
    LoadWords<kLanes, kFormat>(words + v * kLanes, rows[v]);
  }
  TRIMTAB_UNROLL for (int slot = 0; slot < slots; ++slot) {
    TRIMTAB_UNROLL for (int v = 0; v < V::kCount; ++v) {
      typename V::Float factors;
      Factors<kLanes, kFormat>(rows[v], slot, factors);
      sums[v] += x[slot] * factors;
    }
  }
}

template <int kLanes, WeightFormat kFormat>
[[gnu::always_inline]] inline void MultiplyPanel(const uint32_t* words, const float* scales,
                                                 int64_t columns, const float* x,
                                                 const float* starts, float* y) {
  using V = VectorsOf<kLanes>;
  constexpr int kSlots = static_cast<int>(WordColumns(kFormat));
  constexpr bool kByGroup = kFormat == WeightFormat::kInt4;
  const int64_t step = kByGroup ? kInt4Group : columns;
  typename V::Float results[V::kCount] = {};
  for (int64_t begin = 0; begin < columns; begin += step) {
    typename V::Float sums[V::kCount] = {};
    if constexpr (kByGroup) {
      TRIMTAB_UNROLL for (int v = 0; v < V::kCount; ++v) sums[v] += *starts;
      ++starts;
    }
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
                                              const float* starts, float* y) {
  TRIMTAB_DISPATCH_FORMAT(MultiplyPanel, words, scales, columns, x, starts, y)
}

struct PanelFunctions {
  void (*unpack)(WeightFormat format, const uint32_t* words, int64_t columns, float* block);
  void (*multiply)(WeightFormat format, const uint32_t* words, const float* scales, int64_t columns,
                   const float* x, const float* starts, float* y);
};

void UnpackPlain(WeightFormat format, const uint32_t* words, int64_t columns, float* block) {
  UnpackOf<4>(format, words, columns, block);
}
void MultiplyPlain(WeightFormat format, const uint32_t* words, const float* scales, int64_t columns,
                   const float* x, const float* starts, float* y) {
  MultiplyOf<4>(format, words, scales, columns, x, starts, y);
}

#if defined(__x86_64__)
[[gnu::target("arch=x86-64-v3")]] void UnpackV3(WeightFormat format, const uint32_t* words,
                                                int64_t columns, float* block) {
  UnpackOf<8>(format, words, columns, block);
}
[[gnu::target("arch=x86-64-v3")]] void MultiplyV3(WeightFormat format, const uint32_t* words,
                                                  const float* scales, int64_t columns,
                                                  const float* x, const float* starts, float* y) {
  MultiplyOf<8>(format, words, scales, columns, x, starts, y);
}
[[gnu::target("arch=x86-64-v4")]] void UnpackV4(WeightFormat format, const uint32_t* words,
                                                int64_t columns, float* block) {
  UnpackOf<16>(format, words, columns, block);
}
[[gnu::target("arch=x86-64-v4")]] void MultiplyV4(WeightFormat format, const uint32_t* words,
                                                  const float* scales, int64_t columns,
                                                  const float* x, const float* starts, float* y) {
  MultiplyOf<16>(format, words, scales, columns, x, starts, y);
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

// `unit` and `offset` of the slots of a row of words, once for each of 32 columns.
struct ColumnRules {
  float unit[kInt4Group];
  float offset[kInt4Group];

  explicit ColumnRules(WeightFormat format) {
    const std::array<FactorRule, 8> rules = RulesOf(format);
    for (size_t k = 0; k < std::size(unit); ++k) {
      unit[k] = rules[k % rules.size()].unit;
      offset[k] = rules[k % rules.size()].offset;
    }
  }
};

TRIMTAB_CLONES void MultiplySpan(int64_t n, const float* x, const float* factors, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factors[i];
}

}  // namespace

bool PreparesInputs(WeightFormat format) {
  return format == WeightFormat::kInt8 || format == WeightFormat::kInt4;
}

void PrepareInputs(WeightFormat format, int64_t columns, const float* x, float* prepared,
                   float* starts) {
  const ColumnRules rules(format);
  for (int64_t begin = 0; begin < columns; begin += kInt4Group, x += kInt4Group) {
    MultiplySpan(std::min(kInt4Group, columns - begin), x, rules.unit, prepared + begin);
    if (format != WeightFormat::kInt4) continue;
    float products[kInt4Group];
    MultiplySpan(kInt4Group, x, rules.offset, products);
    float sum = 0;
    for (const float product : products) sum += product;
    *starts++ = -sum;
  }
}

void UnpackFactors(WeightFormat format, const void* panel, int64_t first, int64_t columns,
                   float* block) {
  const auto* words = static_cast<const uint32_t*>(panel);
  Functions().unpack(format, words + first / WordColumns(format) * kPanelRows, columns, block);
}

void UnpackNumbers(WeightFormat format, const void* panel, int64_t first, int64_t columns,
                   float* block) {
  UnpackFactors(format, panel, first, columns, block);
  if (!PreparesInputs(format)) return;
  const std::array<FactorRule, 8> rules = RulesOf(format);
  for (int64_t k = 0; k < columns; ++k) {
    const FactorRule& rule = rules[static_cast<size_t>(k % WordColumns(format))];
    for (int64_t row = 0; row < kPanelRows; ++row, ++block)
      *block = *block * rule.unit - rule.offset;
  }
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
  const std::array<FactorRule, 8> rules = RulesOf(packed.format);
  for (int64_t k = 0; k < packed.in; k += slots, word += kPanelRows) {
    uint32_t lanes[kPanelRows] = {word[lane]};
    float factors[8 * kPanelRows];
    const int64_t count = std::min(slots, packed.in - k);
    UnpackFactors(packed.format, lanes, 0, count, factors);
    for (int64_t i = 0; i < count; ++i) {
      const FactorRule& rule = rules[static_cast<size_t>(i)];
      const float scale = groups > 0 ? scales[(k + i) / group_columns * kPanelRows] : 1.0f;
      values[k + i] = (factors[i * kPanelRows] * rule.unit - rule.offset) * scale;
    }
  }
  if (!packed.input_scales.defined()) return;
  for (int64_t k = 0; k < packed.in; ++k) values[k] *= packed.input_scales.f32()[k];
}

void MultiplyRow(WeightFormat format, const void* panel, const float* scales, int64_t columns,
                 const float* x, const float* starts, float* y) {
  Functions().multiply(format, static_cast<const uint32_t*>(panel), scales, columns, x, starts, y);
}

}  // namespace trimtab
