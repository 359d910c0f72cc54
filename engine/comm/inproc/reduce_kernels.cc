#include "engine/comm/inproc/reduce_kernels.h"

#include <algorithm>
#include <cstring>

#include "engine/base/float16.h"

// One copy of each loop per vector width, picked at run time. Sums are plain additions in a fixed
// order, so every copy gives the same bits.
#if defined(__x86_64__)
#define TRIMTAB_VECTOR_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define TRIMTAB_VECTOR_CLONES
#endif

namespace trimtab {
namespace {

// Elements reduced at a time: the accumulator and a block of two sources stay in the L1 cache.
constexpr int64_t kBlock = 1024;

// The storage type T of a buffer and the type `Sum` in which it is accumulated.
struct F32 {
  using Stored = float;
  using Sum = float;
  static Sum Load(Stored x) { return x; }
  static Stored Store(Sum x) { return x; }
};
struct Bf16 {
  using Stored = uint16_t;
  using Sum = float;
  static Sum Load(Stored x) { return Bf16ToFloat(x); }
  static Stored Store(Sum x) { return FloatToBf16(x); }
};
struct F16 {
  using Stored = uint16_t;
  using Sum = float;
  static Sum Load(Stored x) { return F16ToFloat(x); }
  static Stored Store(Sum x) { return FloatToF16(x); }
};
template <typename Signed, typename Unsigned>
struct Integer {
  using Stored = Signed;
  using Sum = Signed;
  static Sum Load(Stored x) { return x; }
  static Stored Store(Sum x) { return x; }
  static Sum Add(Sum a, Sum b) {  // wraps around; signed overflow would be undefined
    return static_cast<Signed>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  }
};
using I32 = Integer<int32_t, uint32_t>;
using I64 = Integer<int64_t, uint64_t>;

template <typename Type>
[[gnu::always_inline]] inline typename Type::Sum Add(typename Type::Sum a, typename Type::Sum b) {
  if constexpr (requires { Type::Add(a, b); }) {
    return Type::Add(a, b);
  } else {
    return a + b;
  }
}

template <typename Sum>
[[gnu::always_inline]] inline Sum Max(Sum a, Sum b) {
  return (a < b || b != b) ? b : a;
}

/// sum[i] = sum[i] op x[i].
template <typename Type>
[[gnu::always_inline]] inline void Accumulate(ReduceOp op, typename Type::Sum* __restrict sum,
                                              const typename Type::Stored* __restrict x,
                                              int64_t count) {
  if (op == ReduceOp::kSum) {
    for (int64_t i = 0; i < count; ++i) sum[i] = Add<Type>(sum[i], Type::Load(x[i]));
  } else {
    for (int64_t i = 0; i < count; ++i) sum[i] = Max(sum[i], Type::Load(x[i]));
  }
}

template <typename Type>
[[gnu::always_inline]] inline void Reduce(ReduceOp op, std::span<const void* const> sources,
                                          std::span<void* const> targets, int64_t begin,
                                          int64_t end, int64_t shift) {
  using Stored = typename Type::Stored;
  using Sum = typename Type::Sum;
  alignas(64) Sum sum[kBlock];
  alignas(64) Stored rounded[kBlock];
  for (int64_t start = begin; start < end; start += kBlock) {
    const int64_t count = std::min(kBlock, end - start);
    const auto* first = static_cast<const Stored*>(sources[0]) + start;
    for (int64_t i = 0; i < count; ++i) sum[i] = Type::Load(first[i]);
    for (size_t rank = 1; rank < sources.size(); ++rank) {
      Accumulate<Type>(op, sum, static_cast<const Stored*>(sources[rank]) + start, count);
    }
    for (int64_t i = 0; i < count; ++i) rounded[i] = Type::Store(sum[i]);
    for (void* target : targets) {
      std::memcpy(static_cast<Stored*>(target) + start + shift, rounded,
                  static_cast<size_t>(count) * sizeof(Stored));
    }
  }
}

#define TRIMTAB_REDUCE_FUNCTION(Type)                                                        \
  TRIMTAB_VECTOR_CLONES void Reduce##Type(ReduceOp op, std::span<const void* const> sources, \
                                          std::span<void* const> targets, int64_t begin,     \
                                          int64_t end, int64_t shift) {                      \
    Reduce<Type>(op, sources, targets, begin, end, shift);                                   \
  }
TRIMTAB_REDUCE_FUNCTION(F32)
TRIMTAB_REDUCE_FUNCTION(Bf16)
TRIMTAB_REDUCE_FUNCTION(F16)
TRIMTAB_REDUCE_FUNCTION(I32)
TRIMTAB_REDUCE_FUNCTION(I64)
#undef TRIMTAB_REDUCE_FUNCTION

}  // namespace

void ReduceRange(DType dtype, ReduceOp op, std::span<const void* const> sources,
                 std::span<void* const> targets, int64_t begin, int64_t end, int64_t shift) {
  switch (dtype) {
    case DType::kF32:
      return ReduceF32(op, sources, targets, begin, end, shift);
    case DType::kBf16:
      return ReduceBf16(op, sources, targets, begin, end, shift);
    case DType::kF16:
      return ReduceF16(op, sources, targets, begin, end, shift);
    case DType::kI32:
      return ReduceI32(op, sources, targets, begin, end, shift);
    case DType::kI64:
      return ReduceI64(op, sources, targets, begin, end, shift);
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kU16:
    case DType::kI8:
    case DType::kU8:
      break;
  }
  TRIMTAB_ASSERT(false, "no sum or maximum of {}", Name(dtype));
}

}  // namespace trimtab
