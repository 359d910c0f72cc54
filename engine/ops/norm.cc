#include "engine/ops/norm.h"

#include "engine/ops/dispatch.h"
#include "engine/ops/norm_cpu.h"

namespace trimtab {
namespace {

// fp32 values moved: `matrices` of [rows, columns], `vectors` of [columns], `statistics` of [rows].
OpRecord Record(OpKind kind, int64_t rows, int64_t columns, int64_t matrices, int64_t vectors,
                int64_t statistics) {
  const int64_t values = matrices * rows * columns + vectors * columns + statistics * rows;
  return {.kind = kind, .dims = {rows, columns}, .bytes = values * SizeOf(DType::kF32)};
}

}  // namespace

OpRecord LayerNormForwardRecord(int64_t rows, int64_t columns) {
  return Record(OpKind::kLayerNormForward, rows, columns, 2, 2, 2);
}
OpRecord LayerNormBackwardRecord(int64_t rows, int64_t columns) {
  return Record(OpKind::kLayerNormBackward, rows, columns, 4, 3, 2);
}
OpRecord RmsNormForwardRecord(int64_t rows, int64_t columns) {
  return Record(OpKind::kRmsNormForward, rows, columns, 2, 1, 1);
}
OpRecord RmsNormBackwardRecord(int64_t rows, int64_t columns) {
  return Record(OpKind::kRmsNormBackward, rows, columns, 4, 2, 1);
}

void LayerNormForward(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                      Tensor& y, Tensor& mean, Tensor& rstd) {
  constexpr OpKind kOp = OpKind::kLayerNormForward;
  CheckMatrix(kOp, "x", x);
  Device& device = x.device();
  const NormShape shape = {x.dim(0), x.dim(1)};
  CheckOperand(kOp, "x", x, x.shape(), device);
  CheckOperand(kOp, "weight", weight, {shape.columns}, device);
  CheckOperand(kOp, "bias", bias, {shape.columns}, device);
  CheckOperand(kOp, "y", y, x.shape(), device);
  CheckOperand(kOp, "mean", mean, {shape.rows}, device);
  CheckOperand(kOp, "rstd", rstd, {shape.rows}, device);
  const OpScope scope(device, LayerNormForwardRecord(shape.rows, shape.columns));
  if (!RunsOnCpu(device, kOp)) return;
  LayerNormForwardCpu(device.threads(), shape, x.f32(), weight.f32(), bias.f32(), epsilon, y.f32(),
                      mean.f32(), rstd.f32());
}

void LayerNormBackward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                       const Tensor& rstd, Tensor& dx, Tensor& dweight, Tensor& dbias,
                       bool accumulate) {
  constexpr OpKind kOp = OpKind::kLayerNormBackward;
  CheckMatrix(kOp, "x", x);
  Device& device = x.device();
  const NormShape shape = {x.dim(0), x.dim(1)};
  CheckOperand(kOp, "x", x, x.shape(), device);
  CheckOperand(kOp, "dy", dy, x.shape(), device);
  CheckOperand(kOp, "weight", weight, {shape.columns}, device);
  CheckOperand(kOp, "mean", mean, {shape.rows}, device);
  CheckOperand(kOp, "rstd", rstd, {shape.rows}, device);
  CheckOperand(kOp, "dx", dx, x.shape(), device);
  CheckOperand(kOp, "dweight", dweight, {shape.columns}, device);
  CheckOperand(kOp, "dbias", dbias, {shape.columns}, device);
  const OpScope scope(device, LayerNormBackwardRecord(shape.rows, shape.columns));
  if (!RunsOnCpu(device, kOp)) return;
  LayerNormBackwardCpu(device.threads(), shape, dy.f32(), x.f32(), weight.f32(), mean.f32(),
                       rstd.f32(), dx.f32(), dweight.f32(), dbias.f32(), accumulate);
}

void RmsNormForward(const Tensor& x, const Tensor& weight, double epsilon, Tensor& y,
                    Tensor& rstd) {
  constexpr OpKind kOp = OpKind::kRmsNormForward;
  CheckMatrix(kOp, "x", x);
  Device& device = x.device();
  const NormShape shape = {x.dim(0), x.dim(1)};
  CheckOperand(kOp, "x", x, x.shape(), device);
  CheckOperand(kOp, "weight", weight, {shape.columns}, device);
  CheckOperand(kOp, "y", y, x.shape(), device);
  CheckOperand(kOp, "rstd", rstd, {shape.rows}, device);
  const OpScope scope(device, RmsNormForwardRecord(shape.rows, shape.columns));
  if (!RunsOnCpu(device, kOp)) return;
  RmsNormForwardCpu(device.threads(), shape, x.f32(), weight.f32(), epsilon, y.f32(), rstd.f32());
}

void RmsNormBackward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
                     Tensor& dx, Tensor& dweight, bool accumulate) {
  constexpr OpKind kOp = OpKind::kRmsNormBackward;
  CheckMatrix(kOp, "x", x);
  Device& device = x.device();
  const NormShape shape = {x.dim(0), x.dim(1)};
  CheckOperand(kOp, "x", x, x.shape(), device);
  CheckOperand(kOp, "dy", dy, x.shape(), device);
  CheckOperand(kOp, "weight", weight, {shape.columns}, device);
  CheckOperand(kOp, "rstd", rstd, {shape.rows}, device);
  CheckOperand(kOp, "dx", dx, x.shape(), device);
  CheckOperand(kOp, "dweight", dweight, {shape.columns}, device);
  const OpScope scope(device, RmsNormBackwardRecord(shape.rows, shape.columns));
  if (!RunsOnCpu(device, kOp)) return;
  RmsNormBackwardCpu(device.threads(), shape, dy.f32(), x.f32(), weight.f32(), rstd.f32(), dx.f32(),
                     dweight.f32(), accumulate);
}

}  // namespace trimtab
