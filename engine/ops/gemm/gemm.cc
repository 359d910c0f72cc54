#include "engine/ops/gemm/gemm.h"

#include <algorithm>

#include "engine/ops/activation/activation.h"
#include "engine/ops/cpu/activation/activation.h"
#include "engine/ops/cpu/gemm/gemm.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/elementwise/widen.h"

namespace trimtab {
namespace {

constexpr int64_t kFp8InnerMultiple = 16;
constexpr int64_t kFp8ColumnMultiple = 8;

Shape Stored(int64_t rows, int64_t columns, Transpose transpose) {
  return transpose == Transpose::kNo ? Shape{rows, columns} : Shape{columns, rows};
}

MatrixView View(const Tensor& matrix, const F32In& values, Transpose transpose) {
  // oneDNN asks for a leading dimension of at least 1 even when there are no columns.
  return {values.data(), std::max<int64_t>(1, matrix.dim(1)), transpose == Transpose::kYes};
}

void CheckFp8(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b,
              const Tensor& c, const GemmOptions& options, int64_t k) {
  constexpr OpKind kOp = OpKind::kGemm;
  TRIMTAB_ASSERT(IsFp8(a.dtype()) && IsFp8(b.dtype()) &&
                     (a.dtype() == DType::kF8E4M3 || b.dtype() == DType::kF8E4M3),
                 "gemm: a is {}, b is {}, expected fp8 of which one at most is e5m2",
                 Name(a.dtype()), Name(b.dtype()));
  TRIMTAB_ASSERT(trans_a == Transpose::kNo && trans_b == Transpose::kYes,
                 "gemm: fp8 operands have k innermost: a as it is, b transposed");
  TRIMTAB_ASSERT(k % kFp8InnerMultiple == 0 && c.dim(1) % kFp8ColumnMultiple == 0,
                 "gemm: fp8 with n {}, k {}, expected multiples of {} and {}", c.dim(1), k,
                 kFp8ColumnMultiple, kFp8InnerMultiple);
  CheckPlainFloat(kOp, "c", c);
  CheckOperand(kOp, "scale_a", options.scale_a, {1}, c.device());
  CheckOperand(kOp, "scale_b", options.scale_b, {1}, c.device());
}

void CheckTypes(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b,
                const Tensor& c, const GemmOptions& options, int64_t k) {
  constexpr OpKind kOp = OpKind::kGemm;
  if (IsFp8(a.dtype()) || IsFp8(b.dtype())) {
    CheckFp8(a, trans_a, b, trans_b, c, options, k);
    return;
  }
  CheckPlainFloat(kOp, "a", a);
  TRIMTAB_ASSERT(!options.scale_a.defined() && !options.scale_b.defined(),
                 "gemm: scales with {} operands, expected fp8", Name(a.dtype()));
  TRIMTAB_ASSERT(c.dtype() == a.dtype() || c.dtype() == DType::kF32,
                 "gemm: c is {}, a is {}, expected the same or fp32", Name(c.dtype()),
                 Name(a.dtype()));
}

/// What a product does beside its own work, and in which tensor.
struct Extra {
  GemmExtra kind = GemmExtra::kNone;
  std::string_view name{};
  const Tensor* tensor = nullptr;
};

/// Of which there is one at most.
Extra ExtraOf(const GemmOptions& options) {
  Extra found;
  for (const Extra& each : {Extra{GemmExtra::kAddend, "addend", &options.addend},
                            Extra{GemmExtra::kGelu, "gelu", &options.gelu},
                            Extra{GemmExtra::kGeluOf, "gelu_of", &options.gelu_of},
                            Extra{GemmExtra::kRowSums, "row_sums", &options.row_sums}}) {
    if (!each.tensor->defined()) continue;
    TRIMTAB_ASSERT(found.kind == GemmExtra::kNone, "gemm: {} together with {}", each.name,
                   found.name);
    found = each;
  }
  return found;
}

void CheckExtra(const Extra& extra, const Tensor& a, Transpose trans_a, const Tensor& c,
                const GemmOptions& options) {
  if (extra.kind == GemmExtra::kNone) return;
  const bool sums = extra.kind == GemmExtra::kRowSums;
  CheckOperand(OpKind::kGemm, extra.name, *extra.tensor, sums ? Shape{c.dim(0)} : c.shape(),
               c.device(), c.dtype());
  TRIMTAB_ASSERT(c.raw() == nullptr || extra.tensor->raw() != c.raw(),
                 "gemm: {} is c, which is overwritten", extra.name);
  TRIMTAB_ASSERT(sums || !options.accumulate, "gemm: {} with accumulate", extra.name);
  TRIMTAB_ASSERT(!sums || (trans_a == Transpose::kYes && !IsFp8(a.dtype())),
                 "gemm: row_sums of an operand that is not transposed, or fp8");
}

float FactorOf(const Tensor& scale) { return scale.defined() ? *scale.f32() : 1.0f; }

}  // namespace

OpRecord GemmRecord(int64_t m, int64_t n, int64_t k, bool accumulate, const GemmTypes& types) {
  return {.kind = OpKind::kGemm,
          .dtype = types.a,
          .dims = {m, n, k},
          .flops = 2 * m * n * k,
          .bytes = m * k * SizeOf(types.a) + k * n * SizeOf(types.b) +
                   (accumulate ? 2 : 1) * m * n * SizeOf(types.c)};
}

OpRecord GemmRecord(int64_t m, int64_t n, int64_t k, GemmExtra extra, const GemmTypes& types,
                    bool accumulate) {
  OpRecord record = GemmRecord(m, n, k, accumulate, types);
  const auto add = [&](const OpRecord& alone, int64_t moved) {
    record.fused = {.kind = alone.kind, .bytes = alone.bytes, .beside = moved * SizeOf(types.c)};
    record.bytes += record.fused.beside;
  };
  switch (extra) {
    case GemmExtra::kNone:
      break;
    case GemmExtra::kAddend:
      add(AddRecord(m * n, types.c), m * n);
      break;
    case GemmExtra::kGelu:
      add(ActivationForwardRecord(m, n, types.c), m * n);
      break;
    case GemmExtra::kGeluOf:
      add(ActivationBackwardRecord(m, n, types.c), m * n);
      break;
    case GemmExtra::kRowSums:
      add(BiasBackwardRecord(k, m, types.a, types.c), m);
      break;
  }
  return record;
}

OpRecord BiasBackwardRecord(int64_t rows, int64_t columns, DType dtype, DType gradient) {
  return {.kind = OpKind::kBiasBackward,
          .dtype = dtype,
          .dims = {rows, columns},
          .bytes = rows * columns * SizeOf(dtype) + columns * SizeOf(gradient)};
}

void Gemm(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b, Tensor& c,
          const GemmOptions& options) {
  constexpr OpKind kOp = OpKind::kGemm;
  CheckMatrix(kOp, "a", a);
  CheckMatrix(kOp, "b", b);
  CheckMatrix(kOp, "c", c);
  Device& device = c.device();
  const int64_t m = c.dim(0);
  const int64_t n = c.dim(1);
  const int64_t k = a.dim(trans_a == Transpose::kNo ? 1 : 0);
  const bool fp8 = IsFp8(a.dtype()) || IsFp8(b.dtype());
  CheckOperand(kOp, "a", a, Stored(m, k, trans_a), device, a.dtype());
  CheckOperand(kOp, "b", b, Stored(k, n, trans_b), device, fp8 ? b.dtype() : a.dtype());
  CheckOperand(kOp, "c", c, {m, n}, device, c.dtype());
  CheckTypes(a, trans_a, b, trans_b, c, options, k);
  if (options.bias.defined()) {
    CheckOperand(kOp, "bias", options.bias, {n}, device, c.dtype());
    TRIMTAB_ASSERT(!options.accumulate,
                   "gemm: a bias of {} columns with accumulate would be added twice", n);
  }
  const Extra extra = ExtraOf(options);
  CheckExtra(extra, a, trans_a, c, options);
  const OpScope scope(device, GemmRecord(m, n, k, extra.kind, {a.dtype(), b.dtype(), c.dtype()},
                                         options.accumulate));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::gemm)(a, trans_a, b, trans_b, c, options);
  }
  if (device.kind() != DeviceKind::kCpu || c.numel() == 0) return;
  const F32In a32(a, FactorOf(options.scale_a));
  const F32In b32(b, FactorOf(options.scale_b));
  const F32In bias32(options.bias);
  const F32In addend32(options.addend);
  const F32In gelu_of32(options.gelu_of);
  // Of what is stored, which is not what stands in fp32 on the way to another type.
  const bool gelu_after = options.gelu.defined() && c.dtype() != DType::kF32;
  {
    F32Out c32(c, /*read=*/options.accumulate);
    GemmCpu(device.threads(), m, n, k, View(a, a32, trans_a), View(b, b32, trans_b), c32.data(),
            {.accumulate = options.accumulate,
             .bias = bias32.data(),
             .addend = addend32.data(),
             .gelu_of = gelu_of32.data(),
             .gelu = options.gelu.defined() && !gelu_after ? options.gelu.f32() : nullptr,
             .short_sums = fp8 && options.fp8_sums == Fp8Sums::kShortOnCpuToo});
  }
  if (options.row_sums.defined()) {
    BiasBackwardCpu(device.threads(), k, m, a32.data(), F32Out(options.row_sums).data(),
                    /*accumulate=*/false);
  }
  if (!gelu_after) return;
  ActivationForwardCpu(device.threads(), ActivationFunction::kGelu, c.numel(), F32In(c).data(),
                       F32Out(options.gelu).data());
}

void BiasBackward(const Tensor& dy, Tensor& dbias, bool accumulate) {
  constexpr OpKind kOp = OpKind::kBiasBackward;
  CheckMatrix(kOp, "dy", dy);
  CheckPlainFloat(kOp, "dy", dy);
  CheckPlainFloat(kOp, "dbias", dbias);
  Device& device = dy.device();
  CheckOperand(kOp, "dbias", dbias, {dy.dim(1)}, device, dbias.dtype());
  const OpScope scope(device, BiasBackwardRecord(dy.dim(0), dy.dim(1), dy.dtype(), dbias.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::bias_backward)(dy, dbias, accumulate);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  BiasBackwardCpu(device.threads(), dy.dim(0), dy.dim(1), F32In(dy).data(), F32InOut(dbias).data(),
                  accumulate);
}

}  // namespace trimtab
