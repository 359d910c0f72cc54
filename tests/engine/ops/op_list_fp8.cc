// The cases of op_list.h that write fp8 copies of what they make.
#include "engine/ops/fp8/fused_fp8.h"
#include "tests/engine/ops/op_inputs.h"

namespace trimtab {
namespace {

// Long enough for several workers, and no multiple of anything.
constexpr int64_t kRows = 1531;
constexpr int64_t kColumns = 197;
const Shape kMatrix = {kRows, kColumns};
const Shape kVector = {kColumns};
const Shape kStatistics = {kRows};

/// Storage types of one round over the ops: of activations and weights, of weights' gradients.
struct Types {
  DType data;
  DType gradient;
};

Fp8Output Fp8Copy(Device& device, const Shape& shape, DType dtype) {
  return {.rows = ListConstant(device, shape, 0.0f, dtype),
          .transposed = ListConstant(device, {shape[1], shape[0]}, 0.0f, dtype),
          .amax = ListConstant(device, {1}, 0.25f)};
}

void AddFusedFp8(std::vector<OpCase>& ops, const Types& t) {
  constexpr DType kForward = DType::kF8E4M3;
  constexpr DType kBackward = DType::kF8E5M2;
  ops.push_back(ListCase(LayerNormForwardFp8Record(kRows, kColumns, t.data, true), [t](Device& d) {
    Fp8Output out = Fp8Copy(d, kMatrix, kForward);
    Tensor mean = ListValues(d, kStatistics, 2);
    Tensor rstd = ListValues(d, kStatistics, 3);
    LayerNormForwardFp8(ListValues(d, kMatrix, 4, t.data), ListValues(d, kVector, 5, t.data),
                        ListValues(d, kVector, 6, t.data), 1e-5, ListConstant(d, {1}, 3.0f), out,
                        mean, rstd);
    return std::vector<Tensor>{out.rows, out.transposed, out.amax, mean, rstd};
  }));
  ops.push_back(ListCase(RmsNormForwardFp8Record(kRows, kColumns, t.data, true), [t](Device& d) {
    Fp8Output out = Fp8Copy(d, kMatrix, kForward);
    Tensor rstd = ListValues(d, kStatistics, 3);
    RmsNormForwardFp8(ListValues(d, kMatrix, 4, t.data), ListValues(d, kVector, 5, t.data), 1e-5,
                      ListConstant(d, {1}, 3.0f), out, rstd);
    return std::vector<Tensor>{out.rows, out.transposed, out.amax, rstd};
  }));
  ops.push_back(ListCase(GeluForwardFp8Record(kRows, kColumns, t.data, {}), [t](Device& d) {
    Fp8Output out = Fp8Copy(d, kMatrix, kForward);
    GeluForwardFp8(ListValues(d, kMatrix, 2, t.data), ListConstant(d, {1}, 3.0f), out);
    return std::vector<Tensor>{out.rows, out.transposed, out.amax};
  }));
  ops.push_back(ListCase(
      GeluBackwardFp8Record(kRows, kColumns, t.data, {}, true, t.gradient), [t](Device& d) {
        Fp8Output out = Fp8Copy(d, kMatrix, kBackward);
        Tensor dbias = ListValues(d, kVector, 1, t.gradient);
        GeluBackwardFp8(ListValues(d, kMatrix, 2, t.data), ListValues(d, kMatrix, 3, t.data),
                        ListConstant(d, {1}, 3.0f), out, dbias, true);
        return std::vector<Tensor>{out.rows, out.transposed, out.amax, dbias};
      }));
  ops.push_back(ListCase(SwiGluForwardFp8Record(kRows, kColumns, t.data, {}), [t](Device& d) {
    Fp8Output out = Fp8Copy(d, kMatrix, kForward);
    SwiGluForwardFp8(ListValues(d, {kRows, 2 * kColumns}, 2, t.data), ListConstant(d, {1}, 3.0f),
                     out);
    return std::vector<Tensor>{out.rows, out.transposed, out.amax};
  }));
  ops.push_back(ListCase(SwiGluBackwardFp8Record(kRows, kColumns, t.data, {}), [t](Device& d) {
    Fp8Output out = Fp8Copy(d, {kRows, 2 * kColumns}, kBackward);
    SwiGluBackwardFp8(ListValues(d, {kRows, 2 * kColumns}, 2, t.data),
                      ListValues(d, kMatrix, 3, t.data), ListConstant(d, {1}, 3.0f), out);
    return std::vector<Tensor>{out.rows, out.transposed, out.amax};
  }));
  static const AttentionShape kTurned = {{2, 65}, 4, 2, 32};
  ops.push_back(ListCase(RopeBackwardFp8Record(kTurned, t.data, {}), [t](Device& d) {
    Fp8Output out = Fp8Copy(d, {kTurned.tokens(), kTurned.qkv_size()}, kBackward);
    RopeBackwardFp8(kTurned, 10000.0,
                    ListValues(d, {kTurned.tokens(), kTurned.qkv_size()}, 2, t.data),
                    ListConstant(d, {1}, 3.0f), out);
    return std::vector<Tensor>{out.rows, out.transposed, out.amax};
  }));
}

Fp8Beside Beside(Device& device) {
  return {.scale = ListConstant(device, {1}, 3.0f),
          .out = Fp8Copy(device, kMatrix, DType::kF8E5M2)};
}

void AddNormsBeside(std::vector<OpCase>& ops, const Types& t) {
  const OpRecord layer_norm = LayerNormBackwardRecord(kRows, kColumns, t.data, t.gradient);
  ops.push_back(ListCase(BesideFp8(layer_norm, true), [t](Device& d) {
    Tensor dx = ListValues(d, kMatrix, 1, t.data);
    Tensor dweight = ListValues(d, kVector, 2, t.gradient);
    Tensor dbias = ListValues(d, kVector, 3, t.gradient);
    const Fp8Beside copies = Beside(d);
    LayerNormBackward(ListValues(d, kMatrix, 4, t.data), ListValues(d, kMatrix, 5, t.data),
                      ListValues(d, kVector, 6, t.data), ListValues(d, kStatistics, 7),
                      ListValues(d, kStatistics, 8), dx, dweight, dbias, true, false, copies);
    return std::vector<Tensor>{dx, dweight, dbias, copies.out.rows, copies.out.transposed};
  }));
  ops.back().name += "_beside_fp8";
  const OpRecord rms_norm = RmsNormBackwardRecord(kRows, kColumns, t.data, t.gradient);
  ops.push_back(ListCase(BesideFp8(rms_norm, true), [t](Device& d) {
    Tensor dx = ListValues(d, kMatrix, 1, t.data);
    Tensor dweight = ListValues(d, kVector, 2, t.gradient);
    const Fp8Beside copies = Beside(d);
    RmsNormBackward(ListValues(d, kMatrix, 4, t.data), ListValues(d, kMatrix, 5, t.data),
                    ListValues(d, kVector, 6, t.data), ListValues(d, kStatistics, 8), dx, dweight,
                    false, false, copies);
    return std::vector<Tensor>{dx, dweight, copies.out.rows, copies.out.transposed};
  }));
  ops.back().name += "_beside_fp8";
}

}  // namespace

std::vector<OpCase> FusedFp8OpsIn(DType dtype, DType gradient) {
  const Types types = {dtype, gradient};
  std::vector<OpCase> ops;
  AddFusedFp8(ops, types);
  AddNormsBeside(ops, types);
  return ops;
}

}  // namespace trimtab
