#include "engine/ops/gemm/grouped_gemm.h"

#include <functional>
#include <numeric>
#include <vector>

#include "engine/base/units.h"
#include "engine/ops/cpu/elementwise/elementwise.h"
#include "engine/ops/cpu/gemm/gemm.h"
#include "engine/ops/cpu/gemm/grouped_gemm.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/elementwise/widen.h"
#include "engine/ops/fp8/quantize.h"

namespace trimtab {
namespace {

/// Group g's part of a tensor [G, rows, columns], as a matrix.
Tensor MatrixOf(const Tensor& groups, int64_t g) {
  const Shape matrix = {groups.dim(1), groups.dim(2)};
  return groups.Slice(g * matrix.numel(), matrix);
}
Tensor RowOf(const Tensor& groups, int64_t g) {
  return groups.Slice(g * groups.dim(1), {groups.dim(1)});
}

/// Calls body(group, its first row, its number of rows).
void ForEachGroup(GroupRows rows, const std::function<void(int64_t, int64_t, int64_t)>& body) {
  int64_t first = 0;
  for (size_t g = 0; g < rows.size(); ++g) {
    body(static_cast<int64_t>(g), first, rows[g]);
    first += rows[g];
  }
}

int64_t SumOf(GroupRows rows) { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }

/// What transposed fp8 copies have of each group.
std::vector<int64_t> PaddedRows(GroupRows rows) {
  std::vector<int64_t> padded;
  for (const int64_t each : rows) padded.push_back(PaddedFp8Rows(each));
  return padded;
}

void CheckGroups(OpKind op, GroupRows rows, int64_t groups, int64_t all_rows) {
  TRIMTAB_ASSERT(static_cast<int64_t>(rows.size()) == groups && SumOf(rows) == all_rows,
                 "{}: {} groups with {} rows in all, expected {} with {}", Name(op), rows.size(),
                 SumOf(rows), groups, all_rows);
}

/// Whether the operands are fp8.
bool CheckTypes(const Tensor& a, const Tensor& b, const Tensor& c, const GemmOptions& options) {
  constexpr OpKind kOp = OpKind::kGroupedGemm;
  TRIMTAB_ASSERT(!options.bias.defined(), "{}: biases are added by GroupedAddBias", Name(kOp));
  if (IsFp8(a.dtype()) && IsFp8(b.dtype())) {
    CheckPlainFloat(kOp, "c", c);
    CheckOperand(kOp, "scale_a", options.scale_a, {1}, c.device());
    CheckOperand(kOp, "scale_b", options.scale_b, {1}, c.device());
    return true;
  }
  CheckPlainFloat(kOp, "a", a);
  TRIMTAB_ASSERT(b.dtype() == a.dtype() && (c.dtype() == a.dtype() || c.dtype() == DType::kF32),
                 "{}: a is {}, b is {}, c is {}, expected one type, or c in fp32", Name(kOp),
                 Name(a.dtype()), Name(b.dtype()), Name(c.dtype()));
  return false;
}

float FactorOf(const Tensor& scale) { return scale.defined() ? *scale.f32() : 1.0f; }

void CheckTensor3(OpKind op, const char* name, const Tensor& tensor) {
  TRIMTAB_ASSERT(tensor.shape().rank() == 3, "{}: {} is {}, expected three dimensions", Name(op),
                 name, tensor.shape().ToString());
}

}  // namespace

OpRecord GroupedGemmRecord(int64_t groups, int64_t m, int64_t n, int64_t k,
                           const GemmTypes& types) {
  return {.kind = OpKind::kGroupedGemm,
          .dtype = types.a,
          .dims = {CeilDiv(m, groups), n, k, groups},
          .flops = 2 * m * n * k,
          .bytes =
              m * k * SizeOf(types.a) + groups * k * n * SizeOf(types.b) + m * n * SizeOf(types.c)};
}
OpRecord GroupedGemmWeightsRecord(int64_t groups, int64_t m, int64_t n, int64_t k, bool accumulate,
                                  const GemmTypes& types) {
  return {.kind = OpKind::kGroupedGemm,
          .dtype = types.a,
          .dims = {m, n, CeilDiv(k, groups), groups},
          .flops = 2 * m * n * k,
          .bytes = k * (m * SizeOf(types.a) + n * SizeOf(types.b)) +
                   (accumulate ? 2 : 1) * groups * m * n * SizeOf(types.c)};
}
OpRecord GroupedAddBiasRecord(int64_t rows, int64_t columns, int64_t groups, DType dtype) {
  return {.kind = OpKind::kGroupedAddBias,
          .dtype = dtype,
          .dims = {rows, columns, groups},
          .bytes = (2 * rows + groups) * columns * SizeOf(dtype)};
}
OpRecord GroupedBiasBackwardRecord(int64_t rows, int64_t columns, int64_t groups, DType dtype,
                                   DType gradient) {
  return {.kind = OpKind::kGroupedBiasBackward,
          .dtype = dtype,
          .dims = {rows, columns, groups},
          .bytes = rows * columns * SizeOf(dtype) + groups * columns * SizeOf(gradient)};
}

void GroupedGemm(const Tensor& a, const Tensor& b, Transpose trans_b, GroupRows rows, Tensor& c,
                 const GemmOptions& options) {
  constexpr OpKind kOp = OpKind::kGroupedGemm;
  CheckMatrix(kOp, "a", a);
  CheckMatrix(kOp, "c", c);
  CheckTensor3(kOp, "b", b);
  const bool fp8 = CheckTypes(a, b, c, options);
  TRIMTAB_ASSERT(!options.accumulate, "{}: adds to nothing", Name(kOp));
  Device& device = c.device();
  const int64_t n = c.dim(1);
  const int64_t k = a.dim(1);
  const int64_t groups = b.dim(0);
  const bool transposed = trans_b == Transpose::kYes;
  TRIMTAB_ASSERT(!fp8 || transposed, "{}: fp8 operands have k innermost: b transposed", Name(kOp));
  CheckOperand(kOp, "a", a, {c.dim(0), k}, device, a.dtype());
  CheckOperand(kOp, "b", b, transposed ? Shape{groups, n, k} : Shape{groups, k, n}, device,
               b.dtype());
  CheckOperand(kOp, "c", c, {c.dim(0), n}, device, fp8 ? c.dtype() : a.dtype());
  CheckGroups(kOp, rows, groups, c.dim(0));
  const OpScope scope(device,
                      GroupedGemmRecord(groups, c.dim(0), n, k, {a.dtype(), b.dtype(), c.dtype()}));
  if (device.kind() == DeviceKind::kCuda) {
    const auto gemm = CudaKernel(device, OpKind::kGemm, &CudaOps::gemm);
    GemmOptions of_group = options;
    of_group.varying = VaryingSize::kM;
    return ForEachGroup(rows, [&](int64_t g, int64_t first, int64_t count) {
      if (count == 0) return;
      Tensor result = c.Rows(first, count);
      gemm(a.Rows(first, count), Transpose::kNo, MatrixOf(b, g), trans_b, result, of_group);
    });
  }
  if (device.kind() != DeviceKind::kCpu) return;
  const F32In a32(a, FactorOf(options.scale_a));
  const F32In b32(b, FactorOf(options.scale_b));
  F32Out c32(c);
  GroupedGemmCpu(device.threads(), rows, n, k, a32.data(), b32.data(), transposed, c32.data(),
                 fp8 && options.fp8_sums == Fp8Sums::kShortOnCpuToo);
}

void GroupedGemmWeights(const Tensor& a, const Tensor& b, GroupRows rows, Tensor& c,
                        const GemmOptions& options) {
  constexpr OpKind kOp = OpKind::kGroupedGemm;
  CheckTensor3(kOp, "c", c);
  CheckPlainFloat(kOp, "c", c);
  const bool fp8 = CheckTypes(a, b, c, options);
  const bool accumulate = options.accumulate;
  Device& device = c.device();
  const int64_t groups = c.dim(0);
  const int64_t m = c.dim(1);
  const int64_t n = c.dim(2);
  const std::vector<int64_t> sums = fp8 ? PaddedRows(rows) : std::vector(rows.begin(), rows.end());
  const int64_t padded = SumOf(sums);
  CheckOperand(kOp, "a", a, fp8 ? Shape{m * padded} : Shape{padded, m}, device, a.dtype());
  CheckOperand(kOp, "b", b, fp8 ? Shape{n * padded} : Shape{padded, n}, device, b.dtype());
  const int64_t k = SumOf(rows);
  CheckGroups(kOp, rows, groups, k);
  const OpScope scope(device, GroupedGemmWeightsRecord(groups, m, n, k, accumulate,
                                                       {a.dtype(), b.dtype(), c.dtype()}));
  if (device.kind() == DeviceKind::kCuda) {
    const auto gemm = CudaKernel(device, OpKind::kGemm, &CudaOps::gemm);
    const auto fill = CudaKernel(device, OpKind::kFill, &CudaOps::fill);
    GemmOptions of_group = options;
    of_group.varying = VaryingSize::kK;
    return ForEachGroup(sums, [&](int64_t g, int64_t first, int64_t count) {
      Tensor result = MatrixOf(c, g);
      if (count == 0) {
        if (!accumulate) fill(result, 0.0f);
      } else if (fp8) {
        gemm(a.Slice(first * m, {m, count}), Transpose::kNo, b.Slice(first * n, {n, count}),
             Transpose::kYes, result, of_group);
      } else {
        gemm(a.Rows(first, count), Transpose::kYes, b.Rows(first, count), Transpose::kNo, result,
             of_group);
      }
    });
  }
  if (device.kind() != DeviceKind::kCpu) return;
  const F32In a32(a, FactorOf(options.scale_a));
  const F32In b32(b, FactorOf(options.scale_b));
  F32Out c32(c, /*read=*/accumulate);
  (fp8 ? GroupedGemmColumnsCpu : GroupedGemmWeightsCpu)(device.threads(), sums, m, n, a32.data(),
                                                        b32.data(), c32.data(), accumulate);
}

void GroupedAddBias(const Tensor& bias, GroupRows rows, Tensor& x) {
  constexpr OpKind kOp = OpKind::kGroupedAddBias;
  CheckMatrix(kOp, "x", x);
  CheckMatrix(kOp, "bias", bias);
  CheckPlainFloat(kOp, "x", x);
  Device& device = x.device();
  const int64_t columns = x.dim(1);
  const int64_t groups = bias.dim(0);
  CheckOperand(kOp, "bias", bias, {groups, columns}, device, x.dtype());
  CheckGroups(kOp, rows, groups, x.dim(0));
  const OpScope scope(device, GroupedAddBiasRecord(x.dim(0), columns, groups, x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    const auto add = CudaKernel(device, OpKind::kAddBias, &CudaOps::add_bias);
    return ForEachGroup(rows, [&](int64_t g, int64_t first, int64_t count) {
      if (count == 0) return;
      Tensor part = x.Rows(first, count);
      add(RowOf(bias, g), part, /*addend=*/{});
    });
  }
  if (device.kind() != DeviceKind::kCpu) return;
  ForEachGroup(rows, [&](int64_t g, int64_t first, int64_t count) {
    AddBiasCpu(device.threads(), count, columns, x.dtype(), RowOf(bias, g).raw(),
               /*addend=*/nullptr, x.Rows(first, count).raw());
  });
}

void GroupedBiasBackward(const Tensor& dy, GroupRows rows, Tensor& dbias, bool accumulate) {
  constexpr OpKind kOp = OpKind::kGroupedBiasBackward;
  CheckMatrix(kOp, "dy", dy);
  CheckMatrix(kOp, "dbias", dbias);
  CheckPlainFloat(kOp, "dy", dy);
  CheckPlainFloat(kOp, "dbias", dbias);
  Device& device = dy.device();
  const int64_t columns = dy.dim(1);
  const int64_t groups = dbias.dim(0);
  CheckOperand(kOp, "dbias", dbias, {groups, columns}, device, dbias.dtype());
  CheckGroups(kOp, rows, groups, dy.dim(0));
  const OpScope scope(
      device, GroupedBiasBackwardRecord(dy.dim(0), columns, groups, dy.dtype(), dbias.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    const auto sum = CudaKernel(device, OpKind::kBiasBackward, &CudaOps::bias_backward);
    const auto fill = CudaKernel(device, OpKind::kFill, &CudaOps::fill);
    return ForEachGroup(rows, [&](int64_t g, int64_t first, int64_t count) {
      Tensor result = RowOf(dbias, g);
      if (count > 0) return sum(dy.Rows(first, count), result, accumulate);
      if (!accumulate) fill(result, 0.0f);
    });
  }
  if (device.kind() != DeviceKind::kCpu) return;
  const F32In dy32(dy);
  F32InOut dbias32(dbias);
  ForEachGroup(rows, [&](int64_t g, int64_t first, int64_t count) {
    BiasBackwardCpu(device.threads(), count, columns, dy32.data() + first * columns,
                    dbias32.data() + g * columns, accumulate);
  });
}

}  // namespace trimtab
