#include "tests/engine/ops/op_list.h"

#include "engine/base/units.h"
#include "engine/ops/activation/activation.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/fp8/quantize.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/norm/norm.h"
#include "engine/ops/optimizer/adamw.h"
#include "engine/ops/optimizer/momentum.h"
#include "engine/ops/optimizer/newton_schulz.h"
#include "engine/ops/vocabulary/cross_entropy.h"
#include "engine/ops/vocabulary/embedding.h"
#include "tests/engine/ops/op_inputs.h"

namespace trimtab {
namespace {

// Long enough for several workers, and no multiple of anything.
constexpr int64_t kRows = 1531;
constexpr int64_t kColumns = 197;
constexpr int64_t kVocab = 23;
constexpr int64_t kNumel = 100003;

Tensor RawBits(Device& device, int64_t count) {
  std::vector<uint16_t> bits;
  for (int64_t i = 0; i < count; ++i) bits.push_back(static_cast<uint16_t>(i * 40503));
  const Tensor tensor = Tensor::Empty(device, {count}, DType::kU16, MemoryTag::kActivations);
  device.CopyFromHost(tensor.raw(), bits.data(), tensor.bytes());
  return tensor;
}

/// Storage types of one round over the ops: of activations and weights, of weights' gradients.
struct Types {
  DType data;
  DType gradient;
};

Tensor Tokens(Device& device, int64_t count) {
  return ListIds(device, {count}, [](int64_t i) { return i * 5 % kVocab; });
}

const Shape kMatrix = {kRows, kColumns};
const Shape kVector = {kColumns};
const Shape kStatistics = {kRows};

void AddProducts(std::vector<OpCase>& ops, const Types& t) {
  ops.push_back(
      ListCase(GemmRecord(kRows, 77, kColumns, false, {t.data, t.data, t.data}), [t](Device& d) {
        Tensor c = ListValues(d, {kRows, 77}, 1, t.data);
        Gemm(ListValues(d, kMatrix, 2, t.data), Transpose::kNo,
             ListValues(d, {77, kColumns}, 3, t.data), Transpose::kYes, c,
             {.bias = ListValues(d, {77}, 4, t.data)});
        return std::vector<Tensor>{c};
      }));
  ops.push_back(
      ListCase(GemmRecord(kRows, 77, kColumns, true, {t.data, t.data, t.gradient}), [t](Device& d) {
        Tensor c = ListValues(d, {kRows, 77}, 1, t.gradient);
        Gemm(ListValues(d, kMatrix, 2, t.data), Transpose::kNo,
             ListValues(d, {kColumns, 77}, 3, t.data), Transpose::kNo, c, {.accumulate = true});
        return std::vector<Tensor>{c};
      }));
  ops.back().name += "_accumulate";
  const auto extra = [&](GemmExtra which, const char* name, Tensor GemmOptions::*matrix) {
    const OpRecord record = GemmRecord(kRows, 77, kColumns, which, {t.data, t.data, t.data});
    ops.push_back(ListCase(record, [t, matrix](Device& d) {
      Tensor c = ListValues(d, {kRows, 77}, 1, t.data);
      GemmOptions options;
      options.*matrix = ListValues(d, {kRows, 77}, 4, t.data);
      Gemm(ListValues(d, kMatrix, 2, t.data), Transpose::kNo,
           ListValues(d, {kColumns, 77}, 3, t.data), Transpose::kNo, c, options);
      return std::vector<Tensor>{c, options.*matrix};
    }));
    ops.back().name += name;
  };
  extra(GemmExtra::kAddend, "_addend", &GemmOptions::addend);
  extra(GemmExtra::kGelu, "_gelu", &GemmOptions::gelu);
  extra(GemmExtra::kGeluOf, "_gelu_of", &GemmOptions::gelu_of);
  const OpRecord with_sums = GemmRecord(kColumns, 77, kRows, GemmExtra::kRowSums,
                                        {t.data, t.data, t.gradient}, /*accumulate=*/true);
  ops.push_back(ListCase(with_sums, [t](Device& d) {
    Tensor c = ListValues(d, {kColumns, 77}, 1, t.gradient);
    const Tensor sums = ListValues(d, kVector, 4, t.gradient);
    Gemm(ListValues(d, kMatrix, 2, t.data), Transpose::kYes, ListValues(d, {kRows, 77}, 3, t.data),
         Transpose::kNo, c, {.accumulate = true, .row_sums = sums});
    return std::vector<Tensor>{c, sums};
  }));
  ops.back().name += "_row_sums";
  ops.push_back(ListCase(BiasBackwardRecord(kRows, kColumns, t.data, t.gradient), [t](Device& d) {
    Tensor dbias = ListValues(d, kVector, 1, t.gradient);
    BiasBackward(ListValues(d, kMatrix, 2, t.data), dbias, true);
    return std::vector<Tensor>{dbias};
  }));
}

void AddNorms(std::vector<OpCase>& ops, const Types& t) {
  ops.push_back(ListCase(LayerNormForwardRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor y = ListValues(d, kMatrix, 1, t.data);
    Tensor mean = ListValues(d, kStatistics, 2);
    Tensor rstd = ListValues(d, kStatistics, 3);
    LayerNormForward(ListValues(d, kMatrix, 4, t.data), ListValues(d, kVector, 5, t.data),
                     ListValues(d, kVector, 6, t.data), 1e-5, y, mean, rstd);
    return std::vector<Tensor>{y, mean, rstd};
  }));
  ops.push_back(
      ListCase(LayerNormBackwardRecord(kRows, kColumns, t.data, t.gradient), [t](Device& d) {
        Tensor dx = ListValues(d, kMatrix, 1, t.data);
        Tensor dweight = ListValues(d, kVector, 2, t.gradient);
        Tensor dbias = ListValues(d, kVector, 3, t.gradient);
        LayerNormBackward(ListValues(d, kMatrix, 4, t.data), ListValues(d, kMatrix, 5, t.data),
                          ListValues(d, kVector, 6, t.data), ListValues(d, kStatistics, 7),
                          ListValues(d, kStatistics, 8), dx, dweight, dbias, true);
        return std::vector<Tensor>{dx, dweight, dbias};
      }));
  ops.push_back(ListCase(RmsNormForwardRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor y = ListValues(d, kMatrix, 1, t.data);
    Tensor rstd = ListValues(d, kStatistics, 3);
    RmsNormForward(ListValues(d, kMatrix, 4, t.data), ListValues(d, kVector, 5, t.data), 1e-5, y,
                   rstd);
    return std::vector<Tensor>{y, rstd};
  }));
  ops.push_back(
      ListCase(RmsNormBackwardRecord(kRows, kColumns, t.data, t.gradient), [t](Device& d) {
        Tensor dx = ListValues(d, kMatrix, 1, t.data);
        Tensor dweight = ListValues(d, kVector, 2, t.gradient);
        RmsNormBackward(ListValues(d, kMatrix, 4, t.data), ListValues(d, kMatrix, 5, t.data),
                        ListValues(d, kVector, 6, t.data), ListValues(d, kStatistics, 8), dx,
                        dweight, false);
        return std::vector<Tensor>{dx, dweight};
      }));
}

void AddActivations(std::vector<OpCase>& ops, const Types& t) {
  ops.push_back(ListCase(ActivationForwardRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor y = ListValues(d, kMatrix, 1, t.data);
    ActivationForward(ActivationFunction::kGelu, ListValues(d, kMatrix, 2, t.data), y);
    return std::vector<Tensor>{y};
  }));
  ops.push_back(ListCase(ActivationBackwardRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor dx = ListValues(d, kMatrix, 1, t.data);
    ActivationBackward(ActivationFunction::kGelu, ListValues(d, kMatrix, 2, t.data), dx, dx);
    return std::vector<Tensor>{dx};
  }));
  ops.push_back(ListCase(GatedActivationForwardRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor y = ListValues(d, kMatrix, 1, t.data);
    GatedActivationForward(ActivationFunction::kSilu,
                           ListValues(d, {kRows, 2 * kColumns}, 2, t.data), y);
    return std::vector<Tensor>{y};
  }));
  ops.push_back(ListCase(GatedActivationBackwardRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor dgate_up = ListValues(d, {kRows, 2 * kColumns}, 1, t.data);
    GatedActivationBackward(ActivationFunction::kSilu,
                            ListValues(d, {kRows, 2 * kColumns}, 2, t.data),
                            ListValues(d, kMatrix, 3, t.data), dgate_up);
    return std::vector<Tensor>{dgate_up};
  }));
}

void AddEmbeddings(std::vector<OpCase>& ops, const Types& t) {
  ops.push_back(ListCase(EmbeddingForwardRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor out = ListValues(d, kMatrix, 1, t.data);
    EmbeddingForward(Tokens(d, kRows), ListValues(d, {kVocab, kColumns}, 2, t.data), 0, out);
    return std::vector<Tensor>{out};
  }));
  ops.push_back(
      ListCase(EmbeddingBackwardRecord(kRows, kColumns, t.data, t.gradient), [t](Device& d) {
        Tensor dtable = ListValues(d, {kVocab, kColumns}, 1, t.gradient);
        EmbeddingBackward(Tokens(d, kRows), ListValues(d, kMatrix, 2, t.data), 0, dtable);
        return std::vector<Tensor>{dtable};
      }));
  ops.push_back(ListCase(PositionForwardRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor x = ListValues(d, kMatrix, 1, t.data);
    PositionForward(ListValues(d, {kVocab, kColumns}, 2, t.data), 3, {1, kVocab}, x);
    return std::vector<Tensor>{x};
  }));
  ops.push_back(
      ListCase(PositionBackwardRecord(kRows, kColumns, t.data, t.gradient), [t](Device& d) {
        Tensor dtable = ListValues(d, {kVocab, kColumns}, 1, t.gradient);
        PositionBackward(ListValues(d, kMatrix, 2, t.data), 3, {1, kVocab}, dtable);
        return std::vector<Tensor>{dtable};
      }));
}

void AddCrossEntropy(std::vector<OpCase>& ops, const Types& t) {
  static constexpr VocabShard kShard = {.start = 0, .valid = kColumns - 2};
  ops.push_back(ListCase(CrossEntropyRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor logits = ListValues(d, kMatrix, 1, t.data);
    Tensor losses = ListValues(d, kStatistics, 2);
    CrossEntropy(Tokens(d, kRows), kShard.valid, ListConstant(d, {1}, 0.5f), logits, losses);
    return std::vector<Tensor>{logits, losses};
  }));
  ops.push_back(ListCase(CrossEntropyPartsRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor parts = ListValues(d, {3, kRows}, 1);
    CrossEntropyParts(ListValues(d, kMatrix, 2, t.data), Tokens(d, kRows), kShard, parts);
    return std::vector<Tensor>{parts};
  }));
  ops.push_back(ListCase(CrossEntropyGradRecord(kRows, kColumns, 2, t.data), [t](Device& d) {
    Tensor logits = ListValues(d, kMatrix, 1, t.data);
    Tensor losses = ListValues(d, kStatistics, 2);
    CrossEntropyGrad(Tokens(d, kRows), kShard, ListConstant(d, {2, 3, kRows}, 2.0f),
                     ListConstant(d, {1}, 0.5f), logits, losses);
    return std::vector<Tensor>{logits, losses};
  }));
}

void AddElementwise(std::vector<OpCase>& ops, const Types& t) {
  ops.push_back(ListCase(AddRecord(kNumel, t.data), [t](Device& d) {
    Tensor y = ListValues(d, {kNumel}, 1, t.data);
    Add(ListValues(d, {kNumel}, 2, t.data), y);
    return std::vector<Tensor>{y};
  }));
  ops.push_back(ListCase(CopyRecord(kNumel, t.data, t.data), [t](Device& d) {
    Tensor y = ListValues(d, {kNumel}, 1, t.data);
    Copy(ListValues(d, {kNumel}, 2, t.data), y);
    return std::vector<Tensor>{y};
  }));
  ops.push_back(ListCase(CopyRecord(kRows * 100, t.data, t.data), [t](Device& d) {
    Tensor y = ListValues(d, {kRows, 120}, 1, t.data);
    CopyColumns(ListValues(d, kMatrix, 2, t.data), 90, y, 13, 100);
    return std::vector<Tensor>{y};
  }));
  ops.back().name += "_columns";
  ops.push_back(ListCase(FillRecord(kNumel, t.data), [t](Device& d) {
    Tensor x = ListValues(d, {kNumel}, 1, t.data);
    Fill(x, 3.0f);
    return std::vector<Tensor>{x};
  }));
  ops.push_back(ListCase(ApplySoftCapRecord(kNumel, t.data), [t](Device& d) {
    Tensor x = ListValues(d, {kNumel}, 1, t.data);
    ApplySoftCap({.scale = 0.5f, .cap = 2.0f}, x);
    return std::vector<Tensor>{x};
  }));
  ops.push_back(ListCase(ClampRecord(kNumel, t.data), [t](Device& d) {
    Tensor y = ListValues(d, {kNumel}, 1, t.data);
    Clamp(ListValues(d, {kNumel}, 2, t.data), 0.5f, y);
    return std::vector<Tensor>{y};
  }));
  ops.push_back(ListCase(ClampBackwardRecord(kNumel, t.data), [t](Device& d) {
    Tensor dx = ListValues(d, {kNumel}, 1, t.data);
    ClampBackward(ListValues(d, {kNumel}, 2, t.data), 0.5f, dx);
    return std::vector<Tensor>{dx};
  }));
  ops.push_back(ListCase(AddBiasRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor x = ListValues(d, kMatrix, 1, t.data);
    AddBias(ListValues(d, kVector, 2, t.data), x);
    return std::vector<Tensor>{x};
  }));
  const OpRecord bias_and_addend = AddBiasRecord(kRows, kColumns, t.data, /*addend=*/true);
  ops.push_back(ListCase(bias_and_addend, [t](Device& d) {
    Tensor x = ListValues(d, kMatrix, 1, t.data);
    AddBias(ListValues(d, kVector, 2, t.data), x, ListValues(d, kMatrix, 3, t.data));
    return std::vector<Tensor>{x};
  }));
  ops.back().name += "_addend";
  ops.push_back(ListCase(SumSquaresRecord(kNumel, t.data), [t](Device& d) {
    Tensor sum = ListValues(d, {1}, 1);
    SumSquares(ListValues(d, {kNumel}, 2, t.data), sum);
    return std::vector<Tensor>{sum};
  }));
}

void AddFp8(std::vector<OpCase>& ops, const Types& t) {
  ops.push_back(ListCase(AmaxRecord(kNumel, t.data), [t](Device& d) {
    Tensor amax = ListConstant(d, {1}, 0.25f);
    Amax(ListValues(d, {kNumel}, 2, t.data), amax);
    return std::vector<Tensor>{amax};
  }));
  ops.push_back(ListCase(QuantizeRecord(kRows, kColumns, t.data, true, true), [t](Device& d) {
    Fp8Output out = {.rows = ListConstant(d, kMatrix, 0.0f, DType::kF8E5M2),
                     .transposed = ListConstant(d, {kColumns, kRows}, 0.0f, DType::kF8E5M2),
                     .amax = ListConstant(d, {1}, 0.25f)};
    Quantize(ListValues(d, kMatrix, 2, t.data), ListConstant(d, {1}, 3.0f), out);
    return std::vector<Tensor>{out.rows, out.transposed, out.amax};
  }));
  ops.push_back(ListCase(QuantizeRecord(kRows, kColumns, t.data, false, true), [t](Device& d) {
    Fp8Output out = {.transposed = ListConstant(d, {kColumns, kRows}, 0.0f, DType::kF8E4M3)};
    Quantize(ListValues(d, kMatrix, 2, t.data), ListConstant(d, {1}, 3.0f), out);
    return std::vector<Tensor>{out.transposed};
  }));
  ops.back().name += "_transposed";
  const GemmTypes types = {DType::kF8E4M3, DType::kF8E5M2, t.data};
  ops.push_back(ListCase(GemmRecord(256, 120, 192, false, types), [t](Device& d) {
    Tensor c = ListValues(d, {256, 120}, 1, t.data);
    Gemm(ListValues(d, {256, 192}, 2, DType::kF8E4M3), Transpose::kNo,
         ListValues(d, {120, 192}, 3, DType::kF8E5M2), Transpose::kYes, c,
         {.scale_a = ListConstant(d, {1}, 0.3f), .scale_b = ListConstant(d, {1}, 0.7f)});
    return std::vector<Tensor>{c};
  }));
  ops.back().name += "_fp8";
}

void AddUpdate(std::vector<OpCase>& ops, const AdamWTypes& types) {
  ops.push_back(ListCase(AdamWRecord(kNumel, types), [types](Device& d) {
    AdamWState state = {.weight = ListValues(d, {kNumel}, 1, types.weight),
                        .m = ListValues(d, {kNumel}, 2, types.moments),
                        .v = ListConstant(d, {kNumel}, 0.5f, types.moments)};
    if (types.weight != DType::kF32) {
      state.master = types.master == DType::kF32 ? ListValues(d, {kNumel}, 1) : RawBits(d, kNumel);
    }
    std::vector<Tensor> results = {state.weight, state.m, state.v};
    if (state.master.defined()) results.push_back(state.master);
    if (types.moments == DType::kF16) {
      state.m_scale = ListConstant(d, {CeilDiv(kNumel, kMomentBlock)}, 0.5f);
      state.v_scale = ListConstant(d, {CeilDiv(kNumel, kMomentBlock)}, 2.0f);
      results.insert(results.end(), {state.m_scale, state.v_scale});
    }
    const AdamWConfig config = {.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f};
    AdamW(config, ListConstant(d, {kUpdateScalarCount}, 0.5f),
          ListValues(d, {kNumel}, 4, types.gradient), state);
    return results;
  }));
  ops.back().name += fmt::format("_{}_{}", Name(types.weight), Name(types.moments));
}

void AddMomentum(std::vector<OpCase>& ops, const MomentumTypes& types) {
  ops.push_back(ListCase(MomentumRecord(kNumel, types), [types](Device& d) {
    MomentumState state = {
        .weight = {ListValues(d, {kNumel}, 1, types.weight), {}},
        .momentum = {ListValues(d, {kNumel}, 2, types.momentum), {}},
        .update = ListValues(d, {kNumel}, 3, types.update),
    };
    std::vector<Tensor> results = {state.weight.weight, state.momentum.values, state.update};
    if (types.weight != DType::kF32) {
      state.weight.master = ListValues(d, {kNumel}, 1);
      results.push_back(state.weight.master);
    }
    MomentumUpdate({.momentum = 0.9f, .nesterov = true, .weight_decay = 0.1f},
                   ListConstant(d, {kUpdateScalarCount}, 0.5f),
                   ListValues(d, {kNumel}, 4, types.gradient), state);
    return results;
  }));
  ops.back().name += fmt::format("_{}_{}", Name(types.weight), Name(types.momentum));
}

void AddNewtonSchulz(std::vector<OpCase>& ops) {
  ops.push_back(ListCase(NormalizeRecord(kNumel), [](Device& d) {
    Tensor x = ListValues(d, {kNumel}, 1);
    Normalize(ListConstant(d, {1}, 4.0f), 0.5f, x);
    return std::vector<Tensor>{x};
  }));
  ops.push_back(ListCase(QuinticRecord(37), [](Device& d) {
    Tensor squared = ListValues(d, {37, 37}, 1);
    Quintic({.a = 3.5f, .b = -4.75f, .c = 2.0f}, ListValues(d, {37, 37}, 2), squared);
    return std::vector<Tensor>{squared};
  }));
}

void AddScalars(std::vector<OpCase>& ops) {
  ops.push_back(ListCase(SumRecord(kNumel), [](Device& d) {
    Tensor sum = ListValues(d, {1}, 1);
    Sum(ListValues(d, {kNumel}, 2), sum, true);
    return std::vector<Tensor>{sum};
  }));
  ops.push_back(ListCase(CopyRecord(kNumel, DType::kF32, DType::kBf16), [](Device& d) {
    Tensor y = ListValues(d, {kNumel}, 1, DType::kBf16);
    Copy(ListValues(d, {kNumel}, 2), y);
    return std::vector<Tensor>{y};
  }));
  ops.back().name += "_rounded";
  ops.push_back(ListCase(ClipRecord(3), [](Device& d) {
    Tensor scalars = ListConstant(d, {kUpdateScalarCount}, 2.0f);
    Clip(ListConstant(d, {3}, 5.0f), 1.0f, scalars);
    return std::vector<Tensor>{scalars};
  }));
  ops.push_back(ListCase(Fp8ScalesRecord(37, 4), [](Device& d) {
    Tensor amax = ListValues(d, {4, 37}, 1);
    Fp8Scales scales = {ListValues(d, {37}, 2), ListValues(d, {37, kFp8InverseStride}, 3)};
    UpdateFp8Scales(ListConstant(d, {37}, 448.0f), amax, scales);
    return std::vector<Tensor>{amax, scales.scale, scales.inverse};
  }));
}

}  // namespace

std::vector<OpCase> EveryOpIn(DType dtype, DType gradient) {
  const Types types = {dtype, gradient};
  std::vector<OpCase> ops;
  AddProducts(ops, types);
  AddNorms(ops, types);
  AddActivations(ops, types);
  AddEmbeddings(ops, types);
  AddCrossEntropy(ops, types);
  AddElementwise(ops, types);
  AddFp8(ops, types);
  for (OpCase& op : FusedFp8OpsIn(dtype, gradient)) ops.push_back(std::move(op));
  for (OpCase& op : AttentionOpsIn(dtype, gradient)) ops.push_back(std::move(op));
  for (OpCase& op : ExpertOpsIn(dtype, gradient)) ops.push_back(std::move(op));
  for (OpCase& op : ServingOpsIn(dtype)) ops.push_back(std::move(op));
  for (OpCase& op : ops) op.name += fmt::format("_{}", Name(dtype));
  return ops;
}

std::vector<OpCase> EveryOp() {
  std::vector<OpCase> ops = RouterOps();
  AddScalars(ops);
  AddUpdate(ops, {});
  AddUpdate(ops, {.weight = DType::kBf16, .moments = DType::kBf16, .gradient = DType::kBf16});
  AddUpdate(ops, {.weight = DType::kBf16, .master = DType::kU16, .moments = DType::kF16});
  AddMomentum(ops, {.has_update = true});
  AddMomentum(ops, {.weight = DType::kBf16,
                    .momentum = DType::kBf16,
                    .gradient = DType::kBf16,
                    .has_update = true,
                    .update = DType::kBf16});
  AddNewtonSchulz(ops);
  for (const auto& [dtype, gradient] : {Types{DType::kF32, DType::kF32},
                                        {DType::kBf16, DType::kBf16},
                                        {DType::kF16, DType::kF32}}) {
    const auto more = EveryOpIn(dtype, gradient);
    ops.insert(ops.end(), more.begin(), more.end());
  }
  return ops;
}

}  // namespace trimtab
