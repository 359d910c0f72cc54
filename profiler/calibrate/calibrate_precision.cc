#include "profiler/calibrate/calibrate_precision.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "engine/ops/activation/activation.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/norm/norm.h"
#include "profiler/stats.h"

namespace trimtab {
namespace {

constexpr int64_t kColumns = 512;  // of the matrices that row-wise ops are measured on

/// The middle of an axis of the plan.
int64_t Middle(const std::vector<int64_t>& axis) { return axis[axis.size() / 2]; }

Tensor NewFilled(Rig& rig, const Shape& shape, DType dtype) {
  Tensor tensor = Tensor::Empty(rig.device(), shape, dtype, MemoryTag::kWorkspace);
  // fp8 has no fill but with zeros; nothing here goes faster over them.
  Fill(tensor, IsFp8(dtype) ? 0.0f : 0.01f);
  return tensor;
}

/// The same work in a type and in fp32.
using Work = std::function<std::function<void()>(DType)>;

/// Median over `works` of seconds in `dtype` against fp32.
double Factor(Rig& rig, DType dtype, const std::vector<Work>& works) {
  std::vector<double> ratios;
  for (const Work& work : works) {
    const double seconds = rig.Seconds(work(dtype));
    ratios.push_back(seconds / rig.Seconds(work(DType::kF32)));
  }
  return Median(std::move(ratios));
}

/// Operands with k innermost, the one form that fp8 has, and fp32 sums.
Work Product(Rig& rig, int64_t m, int64_t n, int64_t k) {
  return [&rig, m, n, k](DType dtype) -> std::function<void()> {
    const Tensor a = NewFilled(rig, {m, k}, dtype);
    const Tensor b = NewFilled(rig, {n, k}, dtype);
    GemmOptions options;
    if (IsFp8(dtype)) {
      options.scale_a = NewFilled(rig, {1}, DType::kF32);
      options.scale_b = NewFilled(rig, {1}, DType::kF32);
    }
    return [=, &rig] {
      Tensor c = rig.Fresh({m, n});
      Gemm(a, Transpose::kNo, b, Transpose::kYes, c, options);
    };
  };
}

std::vector<Work> Products(Rig& rig, const CalibrationPlan& plan) {
  const int64_t tokens = Middle(plan.gemm_m);
  const int64_t features = Middle(plan.gemm_nk);
  return {Product(rig, tokens, features, features), Product(rig, tokens, 2 * features, features),
          Product(rig, features, features, tokens)};
}

std::vector<Work> Attention(Rig& rig, const CalibrationPlan& plan) {
  const AttentionShape shape = {.rows = {1, Middle(plan.sequences)},
                                .heads = Middle(plan.batch_heads),
                                .kv_heads = Middle(plan.batch_heads),
                                .head_size = Middle(plan.head_sizes)};
  const Shape qkv_shape = {shape.tokens(), shape.qkv_size()};
  const Shape out_shape = {shape.tokens(), shape.heads * shape.head_size};
  const Shape sums_shape = {1, shape.heads, shape.rows.sequence};
  const auto forward = [=, &rig](DType dtype) -> std::function<void()> {
    const Tensor qkv = NewFilled(rig, qkv_shape, dtype);
    Tensor out = NewFilled(rig, out_shape, dtype);
    Tensor sums = NewFilled(rig, sums_shape, DType::kF32);
    return [=]() mutable { AttentionForward(shape, qkv, out, sums); };
  };
  const auto backward = [=, &rig](DType dtype) -> std::function<void()> {
    const Tensor qkv = NewFilled(rig, qkv_shape, dtype);
    const Tensor out = NewFilled(rig, out_shape, dtype);
    const Tensor sums = NewFilled(rig, sums_shape, DType::kF32);
    Tensor dqkv = NewFilled(rig, qkv_shape, dtype);
    return [=]() mutable { AttentionBackward(shape, qkv, out, sums, out, dqkv); };
  };
  return {forward, backward};
}

std::vector<Work> OtherOps(Rig& rig, const CalibrationPlan& plan) {
  const int64_t row_bytes = 2 * kColumns * SizeOf(DType::kF32);
  const int64_t rows = std::max<int64_t>(1, Middle(plan.op_bytes) / row_bytes);
  const Shape shape = {rows, kColumns};
  const auto norm = [=, &rig](DType dtype) -> std::function<void()> {
    const Tensor x = NewFilled(rig, shape, dtype);
    const Tensor weight = NewFilled(rig, {kColumns}, dtype);
    Tensor y = NewFilled(rig, shape, dtype);
    Tensor rstd = NewFilled(rig, {rows}, DType::kF32);
    return [=]() mutable { RmsNormForward(x, weight, 1e-5, y, rstd); };
  };
  const auto activation = [=, &rig](DType dtype) -> std::function<void()> {
    const Tensor x = NewFilled(rig, {rows, 2 * kColumns}, dtype);
    Tensor y = NewFilled(rig, shape, dtype);
    return [=]() mutable { GatedActivationForward(ActivationFunction::kSilu, x, y); };
  };
  const auto add = [=, &rig](DType dtype) -> std::function<void()> {
    const Tensor x = NewFilled(rig, shape, dtype);
    Tensor y = NewFilled(rig, shape, dtype);
    return [=]() mutable { Add(x, y); };
  };
  return {norm, activation, add};
}

}  // namespace

std::map<std::string, PrecisionFactors> MeasurePrecisions(Rig& rig, const CalibrationPlan& plan) {
  std::map<std::string, PrecisionFactors> factors;
  const std::vector<Work> products = Products(rig, plan);
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    factors[std::string(Name(dtype))] = {.gemm = Factor(rig, dtype, products),
                                         .attention = Factor(rig, dtype, Attention(rig, plan)),
                                         .ops = Factor(rig, dtype, OtherOps(rig, plan))};
  }
  PrecisionFactors fp8 = factors.at("bf16");
  fp8.gemm = Factor(rig, DType::kF8E4M3, products);
  factors["fp8"] = fp8;
  return factors;
}

}  // namespace trimtab
