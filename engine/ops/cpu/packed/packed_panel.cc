#include "engine/ops/cpu/packed/packed_panel.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/base/units.h"
#include "engine/ops/cpu/packed/packed_factors.h"
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

// Groups of columns whose scales are asked of memory ahead of those that are used.
constexpr int64_t kGroupsAhead = 8;

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

// Of one panel.
[[gnu::always_inline]] inline int64_t PanelWords(WeightFormat format, int64_t columns) {
  return CeilDiv(columns, WordColumns(format)) * kPanelRows;
}

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
        std::memcpy(&row, words + v * kLanes, sizeof(row));
        Factors<kLanes, kFormat>(row, slot, factors);
        std::memcpy(block + v * kLanes, &factors, sizeof(factors));
      }
    }
  }
}

// Panels that one row is multiplied by at a time: eight sums, as many chains as it takes to start
// two multiply-adds a cycle of which each is done after four.
template <int kLanes>
constexpr int kPanelsTogether = 8 / VectorsOf<kLanes>::kCount;

// Adds what the columns of one row of words contribute, `slots` of them, in each of kPanels panels.
template <int kLanes, WeightFormat kFormat, int kPanels>
[[gnu::always_inline]] inline void AddWords(
    const uint32_t* words, int64_t panel_words, int slots, const float* x,
    typename VectorsOf<kLanes>::Float (&sums)[kPanels * VectorsOf<kLanes>::kCount]) {
  using V = VectorsOf<kLanes>;
  TRIMTAB_UNROLL for (int slot = 0; slot < slots; ++slot) {
    TRIMTAB_UNROLL for (int panel = 0; panel < kPanels; ++panel) {
      TRIMTAB_UNROLL for (int v = 0; v < V::kCount; ++v) {
        typename V::U32 row;
        typename V::Float factors;
        std::memcpy(&row, words + panel * panel_words + v * kLanes, sizeof(row));
        Factors<kLanes, kFormat>(row, slot, factors);
        sums[panel * V::kCount + v] += x[slot] * factors;
      }
    }
  }
}

// Asks for the words ahead of `words` in each of kPanels panels, of which `left` words are left:
// behind these come those of the panels that are multiplied next.
template <int kPanels>
[[gnu::always_inline]] inline void PrefetchWords(const uint32_t* words, int64_t panel_words,
                                                 int64_t left) {
  const uint32_t* ahead = words + kWordsAhead;
  if (left <= kWordsAhead) ahead += (kPanels - 1) * panel_words;
  TRIMTAB_UNROLL for (int panel = 0; panel < kPanels; ++panel) {
    for (int64_t line = 0; line < kPanelRows; line += kLineWords) {
      __builtin_prefetch(ahead + panel * panel_words + line);
    }
  }
}

// As PrefetchWords, of scales; `left` groups are left.
template <int kPanels>
[[gnu::always_inline]] inline void PrefetchScales(const float* scales, int64_t panel_scales,
                                                  int64_t left) {
  const float* ahead = scales + kGroupsAhead * kPanelRows;
  if (left <= kGroupsAhead) ahead += (kPanels - 1) * panel_scales;
  TRIMTAB_UNROLL for (int panel = 0; panel < kPanels; ++panel) {
    for (int64_t line = 0; line < kPanelRows; line += kLineWords) {
      __builtin_prefetch(ahead + panel * panel_scales + line);
    }
  }
}

// y [kPanels, kPanelRows].
template <int kLanes, WeightFormat kFormat, int kPanels>
[[gnu::always_inline]] inline void MultiplyPanels(const uint32_t* words, const float* scales,
                                                  int64_t columns, const float* x,
                                                  const float* starts, float* y) {
  using V = VectorsOf<kLanes>;
  constexpr int kSums = kPanels * V::kCount;
  constexpr int kSlots = static_cast<int>(WordColumns(kFormat));
  constexpr bool kByGroup = kFormat == WeightFormat::kInt4;
  const int64_t step = kByGroup ? kInt4Group : columns;
  const int64_t panel_words = PanelWords(kFormat, columns);
  const int64_t panel_scales = columns / step * kPanelRows;
  typename V::Float results[kSums] = {};
  int64_t words_left = panel_words;
  for (int64_t begin = 0; begin < columns; begin += step) {
    typename V::Float sums[kSums] = {};
    if constexpr (kByGroup) {
      PrefetchScales<kPanels>(scales, panel_scales, (columns - begin) / step);
      TRIMTAB_UNROLL for (int v = 0; v < kSums; ++v) sums[v] += *starts;
      ++starts;
    }
    int64_t left = step;
    for (; left >= kSlots; left -= kSlots, words += kPanelRows, x += kSlots) {
      PrefetchWords<kPanels>(words, panel_words, words_left);
      words_left -= kPanelRows;
      AddWords<kLanes, kFormat, kPanels>(words, panel_words, kSlots, x, sums);
    }
    if (left > 0) {
      AddWords<kLanes, kFormat, kPanels>(words, panel_words, static_cast<int>(left), x, sums);
    }
    TRIMTAB_UNROLL for (int v = 0; v < kSums; ++v) {
      typename V::Float factor = {};
      if (scales == nullptr) {
        results[v] = sums[v];
        continue;
      }
      const int64_t panel = v / V::kCount;
      const int64_t lane = v % V::kCount * kLanes;
      std::memcpy(&factor, scales + panel * panel_scales + lane, sizeof(factor));
      results[v] += sums[v] * factor;
    }
    if (kByGroup) scales += kPanelRows;
  }
  std::memcpy(y, &results, sizeof(results));
}

template <int kLanes, WeightFormat kFormat>
[[gnu::always_inline]] inline void MultiplyAll(const PanelRun& panels, int64_t columns,
                                               const float* x, const float* starts, float* y) {
  constexpr int kTogether = kPanelsTogether<kLanes>;
  const auto* words = static_cast<const uint32_t*>(panels.numbers);
  const float* scales = panels.scales;
  int64_t left = panels.count;
  const auto advance = [&](int64_t count) {
    words += count * PanelWords(kFormat, columns);
    if (scales != nullptr) scales += count * kPanelRows * ScalesOf(kFormat, columns);
    y += count * kPanelRows;
    left -= count;
  };
  for (; left >= kTogether; advance(kTogether)) {
    MultiplyPanels<kLanes, kFormat, kTogether>(words, scales, columns, x, starts, y);
  }
  for (; left > 0; advance(1)) {
    MultiplyPanels<kLanes, kFormat, 1>(words, scales, columns, x, starts, y);
  }
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
[[gnu::always_inline]] inline void MultiplyOf(WeightFormat format, const PanelRun& panels,
                                              int64_t columns, const float* x, const float* starts,
                                              float* y) {
  TRIMTAB_DISPATCH_FORMAT(MultiplyAll, panels, columns, x, starts, y)
}

struct PanelFunctions {
  void (*unpack)(WeightFormat format, const uint32_t* words, int64_t columns, float* block);
  void (*multiply)(WeightFormat format, const PanelRun& panels, int64_t columns, const float* x,
                   const float* starts, float* y);
};

void UnpackPlain(WeightFormat format, const uint32_t* words, int64_t columns, float* block) {
  UnpackOf<4>(format, words, columns, block);
}
void MultiplyPlain(WeightFormat format, const PanelRun& panels, int64_t columns, const float* x,
                   const float* starts, float* y) {
  MultiplyOf<4>(format, panels, columns, x, starts, y);
}

#if defined(__x86_64__)
[[gnu::target("arch=x86-64-v3")]] void UnpackV3(WeightFormat format, const uint32_t* words,
                                                int64_t columns, float* block) {
  UnpackOf<8>(format, words, columns, block);
}
[[gnu::target("arch=x86-64-v3")]] void MultiplyV3(WeightFormat format, const PanelRun& panels,
                                                  int64_t columns, const float* x,
                                                  const float* starts, float* y) {
  MultiplyOf<8>(format, panels, columns, x, starts, y);
}
[[gnu::target("arch=x86-64-v4")]] void UnpackV4(WeightFormat format, const uint32_t* words,
                                                int64_t columns, float* block) {
  UnpackOf<16>(format, words, columns, block);
}
[[gnu::target("arch=x86-64-v4")]] void MultiplyV4(WeightFormat format, const PanelRun& panels,
                                                  int64_t columns, const float* x,
                                                  const float* starts, float* y) {
  MultiplyOf<16>(format, panels, columns, x, starts, y);
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

void MultiplyRow(WeightFormat format, const PanelRun& panels, int64_t columns, const float* x,
                 const float* starts, float* y) {
  Functions().multiply(format, panels, columns, x, starts, y);
}

}  // namespace trimtab
