#include "engine/ops/cpu/packed/packed_factors.h"

#include <algorithm>
#include <cstring>

#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

constexpr float PowerOfTwo(int exponent) {
  float power = 1;
  for (; exponent < 0; ++exponent) power /= 2;
  return power;
}

// `unit` and `offset` of the slots of a row of words, once for each of 32 columns.
struct ColumnRules {
  float unit[kInt4Group];
  float offset[kInt4Group];

  static const ColumnRules& Of(WeightFormat format) {
    static const ColumnRules int8(WeightFormat::kInt8);
    static const ColumnRules int4(WeightFormat::kInt4);
    return format == WeightFormat::kInt4 ? int4 : int8;
  }

 private:
  explicit ColumnRules(WeightFormat format) {
    const std::array<FactorRule, 8> rules = RulesOf(format);
    for (size_t k = 0; k < std::size(unit); ++k) {
      unit[k] = rules[k % rules.size()].unit;
      offset[k] = rules[k % rules.size()].offset;
    }
  }
};

// Of a group of columns or, with int8, what is left of a row.
TRIMTAB_CLONES void ScaleGroup(int64_t columns, const float* units, const float* x,
                               float* prepared) {
#pragma omp simd
  for (int64_t i = 0; i < columns; ++i) prepared[i] = x[i] * units[i];
}

// Of whole groups: the sums that they start with are those of eight columns each, in turn.
TRIMTAB_CLONES void PrepareGroups(int64_t groups, const ColumnRules& rules, const float* x,
                                  float* prepared, float* starts) {
  constexpr int64_t kSums = 8;
  for (int64_t g = 0; g < groups; ++g, x += kInt4Group, prepared += kInt4Group) {
    float sums[kSums] = {};
    for (int64_t k = 0; k < kInt4Group; k += kSums) {
#pragma omp simd
      for (int64_t i = 0; i < kSums; ++i) {
        prepared[k + i] = x[k + i] * rules.unit[k + i];
        sums[i] += x[k + i] * rules.offset[k + i];
      }
    }
    starts[g] = -(((sums[0] + sums[1]) + (sums[2] + sums[3])) +
                  ((sums[4] + sums[5]) + (sums[6] + sums[7])));
  }
}

}  // namespace

std::array<FactorRule, 8> RulesOf(WeightFormat format) {
  std::array<FactorRule, 8> rules;
  for (int slot = 0; slot < 8; ++slot) {
    FactorRule& rule = rules[static_cast<size_t>(slot)];
    if (format == WeightFormat::kInt8) rule.unit = 0x1p-24f;
    if (format == WeightFormat::kInt4) {
      rule = {PowerOfTwo(-4 * slot), static_cast<float>(Int4Flip(slot))};
    }
  }
  return rules;
}

bool PreparesInputs(WeightFormat format) {
  return format == WeightFormat::kInt8 || format == WeightFormat::kInt4;
}

void PrepareInputs(WeightFormat format, int64_t columns, const float* x, float* prepared,
                   float* starts) {
  if (!PreparesInputs(format)) {
    std::memcpy(prepared, x, static_cast<size_t>(columns) * sizeof(float));
    return;
  }
  const ColumnRules& rules = ColumnRules::Of(format);
  if (format == WeightFormat::kInt4) {
    return PrepareGroups(columns / kInt4Group, rules, x, prepared, starts);
  }
  for (int64_t begin = 0; begin < columns; begin += kInt4Group) {
    ScaleGroup(std::min(kInt4Group, columns - begin), rules.unit, x + begin, prepared + begin);
  }
}

}  // namespace trimtab
