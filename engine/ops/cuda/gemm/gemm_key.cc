#include "engine/ops/cuda/gemm/gemm_key.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "engine/base/error.h"
#include "engine/base/units.h"

namespace trimtab {
namespace {

auto Members(const GemmKey& key) {
  return std::tie(key.m, key.n, key.k, key.types.a, key.types.b, key.types.c, key.trans_a,
                  key.trans_b, key.alignment_a, key.alignment_b, key.alignment_c,
                  key.alignment_extra, key.accumulate, key.bias, key.extra, key.tf32,
                  key.fast_accumulation, key.varying);
}

struct ExtraMatrix {
  GemmExtra kind = GemmExtra::kNone;
  Tensor matrix{};
};

ExtraMatrix ExtraOf(const GemmOptions& options) {
  if (options.addend.defined()) return {GemmExtra::kAddend, options.addend};
  if (options.gelu.defined()) return {GemmExtra::kGelu, options.gelu};
  if (options.gelu_of.defined()) return {GemmExtra::kGeluOf, options.gelu_of};
  if (options.row_sums.defined()) return {GemmExtra::kRowSums, options.row_sums};
  return {};
}

}  // namespace

uint32_t Alignment(const Tensor& tensor) {
  constexpr uintptr_t kMost = 256;
  const uintptr_t bits = reinterpret_cast<uintptr_t>(tensor.raw()) | kMost;
  return static_cast<uint32_t>(bits & -bits);
}

bool operator<(const GemmKey& left, const GemmKey& right) { return Members(left) < Members(right); }

GemmKey KeyOf(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b,
              const Tensor& c, const GemmOptions& options) {
  const ExtraMatrix extra = ExtraOf(options);
  return {
      .m = c.dim(0),
      .n = c.dim(1),
      .k = a.dim(trans_a == Transpose::kNo ? 1 : 0),
      .types = {a.dtype(), b.dtype(), c.dtype()},
      .trans_a = trans_a,
      .trans_b = trans_b,
      .alignment_a = Alignment(a),
      .alignment_b = Alignment(b),
      .alignment_c = Alignment(c),
      .alignment_extra = extra.matrix.defined() ? Alignment(extra.matrix) : Alignment(c),
      .accumulate = options.accumulate,
      .bias = options.bias.defined(),
      .extra = extra.kind,
      // Both are said of every product of a run; where they mean nothing they are no difference.
      .tf32 = options.tf32 && a.dtype() == DType::kF32,
      .fast_accumulation = options.fp8_sums != Fp8Sums::kFull && IsFp8(a.dtype()),
      .varying = options.varying};
}

std::string Describe(const GemmKey& key) {
  const auto extra = [](GemmExtra kind) -> const char* {
    switch (kind) {
      case GemmExtra::kNone:
        return "";
      case GemmExtra::kAddend:
        return ", an addend";
      case GemmExtra::kGelu:
        return ", gelu";
      case GemmExtra::kGeluOf:
        return ", the derivative of gelu";
      case GemmExtra::kRowSums:
        return ", row sums";
    }
    return "";
  };
  return fmt::format("gemm [{}, {}, {}] of {}{} and {}{} into {}{}{}{}{}", key.m, key.n, key.k,
                     Name(key.types.a), key.trans_a == Transpose::kYes ? "^T" : "",
                     Name(key.types.b), key.trans_b == Transpose::kYes ? "^T" : "",
                     Name(key.types.c), key.accumulate ? ", added to it" : "",
                     key.bias ? ", a bias" : "", extra(key.extra),
                     key.fast_accumulation ? ", fast sums" : "");
}

std::string BrokenRule(const GemmKey& key) {
  constexpr int64_t kAuxiliaryRow = 8;  // values
  if (HasAuxiliary(key)) {
    if (key.n % kAuxiliaryRow != 0) {
      return fmt::format("auxiliary rows of {} are no multiple of {}", key.n, kAuxiliaryRow);
    }
    if (key.bias && key.extra == GemmExtra::kGeluOf) return "a bias with the derivative of gelu";
  }
  if (!key.fp8()) return "";
  constexpr int64_t kRow = 16;       // bytes
  constexpr uint32_t kAddress = 16;  // bytes
  if (!IsFp8(key.types.b)) return "one operand is fp8 and the other is not";
  if (key.types.a == DType::kF8E5M2 && key.types.b == DType::kF8E5M2) return "both are e5m2";
  if (key.trans_a == Transpose::kYes || key.trans_b == Transpose::kNo) {
    return "k is not innermost in both operands";
  }
  if (key.k % kRow != 0) return fmt::format("k = {} is no multiple of {}", key.k, kRow);
  if (key.n * SizeOf(key.types.c) % kRow != 0) {
    return fmt::format("rows of {} {} are no multiple of {} bytes", key.n, Name(key.types.c), kRow);
  }
  if (std::min({key.alignment_a, key.alignment_b, key.alignment_c, key.alignment_extra}) <
      kAddress) {
    return fmt::format("an address is not aligned to {} bytes", kAddress);
  }
  if (key.bias && key.types.c == DType::kF32) return "a bias is added to an fp32 result";
  return "";
}

int64_t RowBucket(int64_t rows) {
  constexpr int64_t kFewest = 16;
  if (rows <= kFewest) return kFewest;
  const auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows - 1)) / 4);
  return CeilDiv(rows, step) * step;
}

GemmKey PlanKey(const GemmKey& key) {
  GemmKey plan = key;
  if (key.varying == VaryingSize::kM) plan.m = RowBucket(key.m);
  if (key.varying == VaryingSize::kK) plan.k = RowBucket(key.k);
  return plan;
}

}  // namespace trimtab
