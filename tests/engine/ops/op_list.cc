#include "tests/engine/ops/op_list.h"

#include <map>
#include <tuple>

#include "engine/base/units.h"
#include "engine/ops/activation.h"
#include "engine/ops/adamw.h"
#include "engine/ops/attention.h"
#include "engine/ops/attention_block.h"
#include "engine/ops/cross_entropy.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/embedding.h"
#include "engine/ops/fused_fp8.h"
#include "engine/ops/gemm.h"
#include "engine/ops/head_norm.h"
#include "engine/ops/norm.h"
#include "engine/ops/quantize.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

// Long enough for several workers, and no multiple of anything.
constexpr int64_t kRows = 1531;
constexpr int64_t kColumns = 197;
constexpr int64_t kVocab = 23;
constexpr int64_t kNumel = 100003;
constexpr AttentionShape kAttention = {
    .batch = 5, .sequence = 131, .heads = 6, .kv_heads = 3, .head_size = 10};

// Made once: every op is run many times on the same values.
Tensor Values(Device& device, const Shape& shape, uint32_t seed, DType dtype = DType::kF32) {
  static std::map<std::tuple<int64_t, uint32_t, DType>, std::vector<char>> known;
  const Tensor tensor = Tensor::Empty(device, shape, dtype, MemoryTag::kActivations);
  std::vector<char>& bytes = known[{shape.numel(), seed, dtype}];
  if (bytes.empty()) bytes = Encoded(dtype, RandomValues(shape.numel(), seed));
  device.CopyFromHost(tensor.raw(), bytes.data(), tensor.bytes());
  return tensor;
}

Tensor Constant(Device& device, const Shape& shape, float value, DType dtype = DType::kF32) {
  Tensor tensor = Tensor::Empty(device, shape, dtype, MemoryTag::kActivations);
  Upload(tensor, std::vector<float>(static_cast<size_t>(shape.numel()), value));
  return tensor;
}

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
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(i * 5 % kVocab));
  Tensor tensor = Tensor::Empty(device, {count}, DType::kI32, MemoryTag::kActivations);
  CopyFromHost(tensor, ids);
  return tensor;
}

OpCase Case(const OpRecord& record, std::function<std::vector<Tensor>(Device&)> run) {
  return {std::string(Name(record.kind)), record, [](const Executor&) { return int64_t{0}; },
          std::move(run)};
}

const Shape kMatrix = {kRows, kColumns};
const Shape kVector = {kColumns};
const Shape kStatistics = {kRows};

void AddProducts(std::vector<OpCase>& ops, const Types& t) {
  ops.push_back(
      Case(GemmRecord(kRows, 77, kColumns, false, {t.data, t.data, t.data}), [t](Device& d) {
        Tensor c = Values(d, {kRows, 77}, 1, t.data);
        Gemm(Values(d, kMatrix, 2, t.data), Transpose::kNo, Values(d, {77, kColumns}, 3, t.data),
             Transpose::kYes, c, {.bias = Values(d, {77}, 4, t.data)});
        return std::vector<Tensor>{c};
      }));
  ops.push_back(
      Case(GemmRecord(kRows, 77, kColumns, true, {t.data, t.data, t.gradient}), [t](Device& d) {
        Tensor c = Values(d, {kRows, 77}, 1, t.gradient);
        Gemm(Values(d, kMatrix, 2, t.data), Transpose::kNo, Values(d, {kColumns, 77}, 3, t.data),
             Transpose::kNo, c, {.accumulate = true});
        return std::vector<Tensor>{c};
      }));
  ops.back().name += "_accumulate";
  ops.push_back(Case(BiasBackwardRecord(kRows, kColumns, t.data, t.gradient), [t](Device& d) {
    Tensor dbias = Values(d, kVector, 1, t.gradient);
    BiasBackward(Values(d, kMatrix, 2, t.data), dbias, true);
    return std::vector<Tensor>{dbias};
  }));
}

void AddNorms(std::vector<OpCase>& ops, const Types& t) {
  ops.push_back(Case(LayerNormForwardRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor y = Values(d, kMatrix, 1, t.data);
    Tensor mean = Values(d, kStatistics, 2);
    Tensor rstd = Values(d, kStatistics, 3);
    LayerNormForward(Values(d, kMatrix, 4, t.data), Values(d, kVector, 5, t.data),
                     Values(d, kVector, 6, t.data), 1e-5, y, mean, rstd);
    return std::vector<Tensor>{y, mean, rstd};
  }));
  ops.push_back(Case(LayerNormBackwardRecord(kRows, kColumns, t.data, t.gradient), [t](Device& d) {
    Tensor dx = Values(d, kMatrix, 1, t.data);
    Tensor dweight = Values(d, kVector, 2, t.gradient);
    Tensor dbias = Values(d, kVector, 3, t.gradient);
    LayerNormBackward(Values(d, kMatrix, 4, t.data), Values(d, kMatrix, 5, t.data),
                      Values(d, kVector, 6, t.data), Values(d, kStatistics, 7),
                      Values(d, kStatistics, 8), dx, dweight, dbias, true);
    return std::vector<Tensor>{dx, dweight, dbias};
  }));
  ops.push_back(Case(RmsNormForwardRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor y = Values(d, kMatrix, 1, t.data);
    Tensor rstd = Values(d, kStatistics, 3);
    RmsNormForward(Values(d, kMatrix, 4, t.data), Values(d, kVector, 5, t.data), 1e-5, y, rstd);
    return std::vector<Tensor>{y, rstd};
  }));
  ops.push_back(Case(RmsNormBackwardRecord(kRows, kColumns, t.data, t.gradient), [t](Device& d) {
    Tensor dx = Values(d, kMatrix, 1, t.data);
    Tensor dweight = Values(d, kVector, 2, t.gradient);
    RmsNormBackward(Values(d, kMatrix, 4, t.data), Values(d, kMatrix, 5, t.data),
                    Values(d, kVector, 6, t.data), Values(d, kStatistics, 8), dx, dweight, false);
    return std::vector<Tensor>{dx, dweight};
  }));
}

void AddHeadNorms(std::vector<OpCase>& ops, const Types& t) {
  static const Shape kQkv = {kAttention.tokens(), kAttention.qkv_size()};
  static const Shape kRstd = {kAttention.tokens(), kAttention.heads + kAttention.kv_heads};
  static const Shape kWeight = {kAttention.head_size};
  ops.push_back(Case(HeadNormForwardRecord(kAttention, t.data), [t](Device& d) {
    Tensor out = Values(d, kQkv, 1, t.data);
    Tensor rstd = Values(d, kRstd, 2);
    HeadNormForward(kAttention, Values(d, kQkv, 3, t.data), Values(d, kWeight, 4, t.data),
                    Values(d, kWeight, 5, t.data), 1e-5, out, rstd);
    return std::vector<Tensor>{out, rstd};
  }));
  ops.push_back(Case(HeadNormBackwardRecord(kAttention, t.data, t.gradient), [t](Device& d) {
    Tensor dqkv = Values(d, kQkv, 1, t.data);
    Tensor dweights = Values(d, {2, kAttention.head_size}, 2, t.gradient);
    HeadNormBackward(kAttention, Values(d, kQkv, 3, t.data), Values(d, kWeight, 4, t.data),
                     Values(d, kWeight, 5, t.data), Values(d, kRstd, 6), false, dqkv, dweights);
    return std::vector<Tensor>{dqkv, dweights};
  }));
}

void AddActivations(std::vector<OpCase>& ops, const Types& t) {
  ops.push_back(Case(ActivationForwardRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor y = Values(d, kMatrix, 1, t.data);
    ActivationForward(ActivationFunction::kGelu, Values(d, kMatrix, 2, t.data), y);
    return std::vector<Tensor>{y};
  }));
  ops.push_back(Case(ActivationBackwardRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor dx = Values(d, kMatrix, 1, t.data);
    ActivationBackward(ActivationFunction::kGelu, Values(d, kMatrix, 2, t.data), dx, dx);
    return std::vector<Tensor>{dx};
  }));
  ops.push_back(Case(GatedActivationForwardRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor y = Values(d, kMatrix, 1, t.data);
    GatedActivationForward(ActivationFunction::kSilu, Values(d, {kRows, 2 * kColumns}, 2, t.data),
                           y);
    return std::vector<Tensor>{y};
  }));
  ops.push_back(Case(GatedActivationBackwardRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor dgate_up = Values(d, {kRows, 2 * kColumns}, 1, t.data);
    GatedActivationBackward(ActivationFunction::kSilu, Values(d, {kRows, 2 * kColumns}, 2, t.data),
                            Values(d, kMatrix, 3, t.data), dgate_up);
    return std::vector<Tensor>{dgate_up};
  }));
}

void AddAttention(std::vector<OpCase>& ops, const Types& t) {
  static const Shape kQkv = {kAttention.tokens(), kAttention.qkv_size()};
  static const Shape kOut = {kAttention.tokens(), kAttention.heads * kAttention.head_size};
  static const Shape kLogSumExp = {kAttention.batch, kAttention.heads, kAttention.sequence};
  ops.push_back(Case(AttentionForwardRecord(kAttention, t.data), [t](Device& d) {
    Tensor out = Values(d, kOut, 1, t.data);
    Tensor log_sum_exp = Values(d, kLogSumExp, 2);
    AttentionForward(kAttention, Values(d, kQkv, 3, t.data), out, log_sum_exp);
    return std::vector<Tensor>{out, log_sum_exp};
  }));
  ops.back().workspace_bytes = [](const Executor& executor) {
    return AttentionForwardWorkspaceBytes(kAttention, executor);
  };
  ops.push_back(Case(AttentionBackwardRecord(kAttention, t.data), [t](Device& d) {
    Tensor dqkv = Values(d, kQkv, 1, t.data);
    AttentionBackward(kAttention, Values(d, kQkv, 3, t.data), Values(d, kOut, 4, t.data),
                      Values(d, kLogSumExp, 5), Values(d, kOut, 6, t.data), dqkv);
    return std::vector<Tensor>{dqkv};
  }));
  ops.back().workspace_bytes = [](const Executor& executor) {
    return AttentionBackwardWorkspaceBytes(kAttention, executor);
  };
  static constexpr AttentionBlock kBlocks[] = {{.size = kAttention.sequence, .causal = true},
                                               {.query = 66, .key = 1, .size = 65}};
  for (const AttentionBlock& block : kBlocks) {
    const char* name = block.causal ? "_causal_block" : "_block";
    ops.push_back(
        Case(AttentionBlockForwardRecord(kAttention, block, t.data), [t, block](Device& d) {
          Tensor out = Values(d, kOut, 1);
          Tensor log_sum_exp = Values(d, kLogSumExp, 2);
          AttentionBlockForward(kAttention, block, Values(d, kQkv, 3, t.data),
                                Values(d, KeyValueShape(kAttention), 4, t.data), out, log_sum_exp);
          return std::vector<Tensor>{out, log_sum_exp};
        }));
    ops.back().name += name;
    ops.back().workspace_bytes = [block](const Executor& executor) {
      return AttentionBlockForwardWorkspaceBytes(kAttention, block, executor);
    };
    ops.push_back(
        Case(AttentionBlockBackwardRecord(kAttention, block, t.data), [t, block](Device& d) {
          Tensor dquery = Values(d, kOut, 1);
          Tensor dkv = Values(d, KeyValueShape(kAttention), 2, t.data);
          AttentionBlockBackward(kAttention, block, Values(d, kQkv, 3, t.data),
                                 Values(d, KeyValueShape(kAttention), 4, t.data),
                                 Values(d, kOut, 5, t.data), Values(d, kLogSumExp, 6),
                                 Values(d, kOut, 7, t.data), dquery, dkv);
          return std::vector<Tensor>{dquery, dkv};
        }));
    ops.back().name += name;
    ops.back().workspace_bytes = [block](const Executor& executor) {
      return AttentionBlockBackwardWorkspaceBytes(kAttention, block, executor);
    };
  }
  ops.push_back(Case(RopeRecord(kAttention, t.data), [t](Device& d) {
    Tensor qkv = Values(d, kQkv, 1, t.data);
    Rope(kAttention, kAttention.sequence, 10000.0, false, qkv);
    return std::vector<Tensor>{qkv};
  }));
}

void AddEmbeddings(std::vector<OpCase>& ops, const Types& t) {
  ops.push_back(Case(EmbeddingForwardRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor out = Values(d, kMatrix, 1, t.data);
    EmbeddingForward(Tokens(d, kRows), Values(d, {kVocab, kColumns}, 2, t.data), 0, out);
    return std::vector<Tensor>{out};
  }));
  ops.push_back(Case(EmbeddingBackwardRecord(kRows, kColumns, t.data, t.gradient), [t](Device& d) {
    Tensor dtable = Values(d, {kVocab, kColumns}, 1, t.gradient);
    EmbeddingBackward(Tokens(d, kRows), Values(d, kMatrix, 2, t.data), 0, dtable);
    return std::vector<Tensor>{dtable};
  }));
  ops.push_back(Case(PositionForwardRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor x = Values(d, kMatrix, 1, t.data);
    PositionForward(Values(d, {kVocab, kColumns}, 2, t.data), 3, kVocab, x);
    return std::vector<Tensor>{x};
  }));
  ops.push_back(Case(PositionBackwardRecord(kRows, kColumns, t.data, t.gradient), [t](Device& d) {
    Tensor dtable = Values(d, {kVocab, kColumns}, 1, t.gradient);
    PositionBackward(Values(d, kMatrix, 2, t.data), 3, kVocab, dtable);
    return std::vector<Tensor>{dtable};
  }));
}

void AddCrossEntropy(std::vector<OpCase>& ops, const Types& t) {
  static constexpr VocabShard kShard = {.start = 0, .valid = kColumns - 2};
  ops.push_back(Case(CrossEntropyMaxRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor row_max = Values(d, kStatistics, 1);
    CrossEntropyMax(Values(d, kMatrix, 2, t.data), kShard, row_max);
    return std::vector<Tensor>{row_max};
  }));
  ops.push_back(Case(CrossEntropySumRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor sums = Values(d, {2, kRows}, 1);
    CrossEntropySum(Values(d, kMatrix, 2, t.data), Tokens(d, kRows), kShard,
                    Values(d, kStatistics, 3), sums);
    return std::vector<Tensor>{sums};
  }));
  ops.push_back(Case(CrossEntropyGradRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor logits = Values(d, kMatrix, 1, t.data);
    Tensor losses = Values(d, kStatistics, 2);
    CrossEntropyGrad(Tokens(d, kRows), kShard, Values(d, kStatistics, 4),
                     Constant(d, {2, kRows}, 2.0f), Constant(d, {1}, 0.5f), logits, losses);
    return std::vector<Tensor>{logits, losses};
  }));
}

void AddElementwise(std::vector<OpCase>& ops, const Types& t) {
  ops.push_back(Case(AddRecord(kNumel, t.data), [t](Device& d) {
    Tensor y = Values(d, {kNumel}, 1, t.data);
    Add(Values(d, {kNumel}, 2, t.data), y);
    return std::vector<Tensor>{y};
  }));
  ops.push_back(Case(CopyRecord(kNumel, t.data, t.data), [t](Device& d) {
    Tensor y = Values(d, {kNumel}, 1, t.data);
    Copy(Values(d, {kNumel}, 2, t.data), y);
    return std::vector<Tensor>{y};
  }));
  ops.push_back(Case(CopyRecord(kRows * 100, t.data, t.data), [t](Device& d) {
    Tensor y = Values(d, {kRows, 120}, 1, t.data);
    CopyColumns(Values(d, kMatrix, 2, t.data), 90, y, 13, 100);
    return std::vector<Tensor>{y};
  }));
  ops.back().name += "_columns";
  ops.push_back(Case(FillRecord(kNumel, t.data), [t](Device& d) {
    Tensor x = Values(d, {kNumel}, 1, t.data);
    Fill(x, 3.0f);
    return std::vector<Tensor>{x};
  }));
  ops.push_back(Case(ApplySoftCapRecord(kNumel, t.data), [t](Device& d) {
    Tensor x = Values(d, {kNumel}, 1, t.data);
    ApplySoftCap({.scale = 0.5f, .cap = 2.0f}, x);
    return std::vector<Tensor>{x};
  }));
  ops.push_back(Case(AddBiasRecord(kRows, kColumns, t.data), [t](Device& d) {
    Tensor x = Values(d, kMatrix, 1, t.data);
    AddBias(Values(d, kVector, 2, t.data), x);
    return std::vector<Tensor>{x};
  }));
  ops.push_back(Case(SumSquaresRecord(kNumel, t.data), [t](Device& d) {
    Tensor sum = Values(d, {1}, 1);
    SumSquares(Values(d, {kNumel}, 2, t.data), sum);
    return std::vector<Tensor>{sum};
  }));
}

void AddFp8(std::vector<OpCase>& ops, const Types& t) {
  ops.push_back(Case(AmaxRecord(kNumel, t.data), [t](Device& d) {
    Tensor amax = Constant(d, {1}, 0.25f);
    Amax(Values(d, {kNumel}, 2, t.data), amax);
    return std::vector<Tensor>{amax};
  }));
  ops.push_back(Case(QuantizeRecord(kRows, kColumns, t.data, true, true), [t](Device& d) {
    Fp8Output out = {.rows = Constant(d, kMatrix, 0.0f, DType::kF8E5M2),
                     .transposed = Constant(d, {kColumns, kRows}, 0.0f, DType::kF8E5M2),
                     .amax = Constant(d, {1}, 0.25f)};
    Quantize(Values(d, kMatrix, 2, t.data), Constant(d, {1}, 3.0f), out);
    return std::vector<Tensor>{out.rows, out.transposed, out.amax};
  }));
  ops.push_back(Case(QuantizeRecord(kRows, kColumns, t.data, false, true), [t](Device& d) {
    Fp8Output out = {.transposed = Constant(d, {kColumns, kRows}, 0.0f, DType::kF8E4M3)};
    Quantize(Values(d, kMatrix, 2, t.data), Constant(d, {1}, 3.0f), out);
    return std::vector<Tensor>{out.transposed};
  }));
  ops.back().name += "_transposed";
  const GemmTypes types = {DType::kF8E4M3, DType::kF8E5M2, t.data};
  ops.push_back(Case(GemmRecord(256, 120, 192, false, types), [t](Device& d) {
    Tensor c = Values(d, {256, 120}, 1, t.data);
    Gemm(Values(d, {256, 192}, 2, DType::kF8E4M3), Transpose::kNo,
         Values(d, {120, 192}, 3, DType::kF8E5M2), Transpose::kYes, c,
         {.scale_a = Constant(d, {1}, 0.3f), .scale_b = Constant(d, {1}, 0.7f)});
    return std::vector<Tensor>{c};
  }));
  ops.back().name += "_fp8";
}

Fp8Output Fp8Copy(Device& device, const Shape& shape, DType dtype) {
  return {.rows = Constant(device, shape, 0.0f, dtype),
          .transposed = Constant(device, {shape[1], shape[0]}, 0.0f, dtype),
          .amax = Constant(device, {1}, 0.25f)};
}

void AddFusedFp8(std::vector<OpCase>& ops, const Types& t) {
  constexpr DType kForward = DType::kF8E4M3;
  constexpr DType kBackward = DType::kF8E5M2;
  ops.push_back(Case(LayerNormForwardFp8Record(kRows, kColumns, t.data, true), [t](Device& d) {
    Fp8Output out = Fp8Copy(d, kMatrix, kForward);
    Tensor mean = Values(d, kStatistics, 2);
    Tensor rstd = Values(d, kStatistics, 3);
    LayerNormForwardFp8(Values(d, kMatrix, 4, t.data), Values(d, kVector, 5, t.data),
                        Values(d, kVector, 6, t.data), 1e-5, Constant(d, {1}, 3.0f), out, mean,
                        rstd);
    return std::vector<Tensor>{out.rows, out.transposed, out.amax, mean, rstd};
  }));
  ops.push_back(Case(RmsNormForwardFp8Record(kRows, kColumns, t.data, true), [t](Device& d) {
    Fp8Output out = Fp8Copy(d, kMatrix, kForward);
    Tensor rstd = Values(d, kStatistics, 3);
    RmsNormForwardFp8(Values(d, kMatrix, 4, t.data), Values(d, kVector, 5, t.data), 1e-5,
                      Constant(d, {1}, 3.0f), out, rstd);
    return std::vector<Tensor>{out.rows, out.transposed, out.amax, rstd};
  }));
  ops.push_back(Case(GeluForwardFp8Record(kRows, kColumns, t.data, {}), [t](Device& d) {
    Fp8Output out = Fp8Copy(d, kMatrix, kForward);
    GeluForwardFp8(Values(d, kMatrix, 2, t.data), Constant(d, {1}, 3.0f), out);
    return std::vector<Tensor>{out.rows, out.transposed, out.amax};
  }));
  ops.push_back(
      Case(GeluBackwardFp8Record(kRows, kColumns, t.data, {}, true, t.gradient), [t](Device& d) {
        Fp8Output out = Fp8Copy(d, kMatrix, kBackward);
        Tensor dbias = Values(d, kVector, 1, t.gradient);
        GeluBackwardFp8(Values(d, kMatrix, 2, t.data), Values(d, kMatrix, 3, t.data),
                        Constant(d, {1}, 3.0f), out, dbias, true);
        return std::vector<Tensor>{out.rows, out.transposed, out.amax, dbias};
      }));
  ops.push_back(Case(SwiGluForwardFp8Record(kRows, kColumns, t.data, {}), [t](Device& d) {
    Fp8Output out = Fp8Copy(d, kMatrix, kForward);
    SwiGluForwardFp8(Values(d, {kRows, 2 * kColumns}, 2, t.data), Constant(d, {1}, 3.0f), out);
    return std::vector<Tensor>{out.rows, out.transposed, out.amax};
  }));
  ops.push_back(Case(SwiGluBackwardFp8Record(kRows, kColumns, t.data, {}), [t](Device& d) {
    Fp8Output out = Fp8Copy(d, {kRows, 2 * kColumns}, kBackward);
    SwiGluBackwardFp8(Values(d, {kRows, 2 * kColumns}, 2, t.data), Values(d, kMatrix, 3, t.data),
                      Constant(d, {1}, 3.0f), out);
    return std::vector<Tensor>{out.rows, out.transposed, out.amax};
  }));
}

void AddUpdate(std::vector<OpCase>& ops, const AdamWTypes& types) {
  ops.push_back(Case(AdamWRecord(kNumel, types), [types](Device& d) {
    AdamWState state = {.weight = Values(d, {kNumel}, 1, types.weight),
                        .m = Values(d, {kNumel}, 2, types.moments),
                        .v = Constant(d, {kNumel}, 0.5f, types.moments)};
    if (types.weight != DType::kF32) {
      state.master = types.master == DType::kF32 ? Values(d, {kNumel}, 1) : RawBits(d, kNumel);
    }
    std::vector<Tensor> results = {state.weight, state.m, state.v};
    if (state.master.defined()) results.push_back(state.master);
    if (types.moments == DType::kF16) {
      state.m_scale = Constant(d, {CeilDiv(kNumel, kMomentBlock)}, 0.5f);
      state.v_scale = Constant(d, {CeilDiv(kNumel, kMomentBlock)}, 2.0f);
      results.insert(results.end(), {state.m_scale, state.v_scale});
    }
    const AdamWConfig config = {.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f};
    AdamW(config, Constant(d, {kUpdateScalarCount}, 0.5f), Values(d, {kNumel}, 4, types.gradient),
          state);
    return results;
  }));
  ops.back().name += fmt::format("_{}_{}", Name(types.weight), Name(types.moments));
}

void AddScalars(std::vector<OpCase>& ops) {
  ops.push_back(Case(SumRecord(kNumel), [](Device& d) {
    Tensor sum = Values(d, {1}, 1);
    Sum(Values(d, {kNumel}, 2), sum, true);
    return std::vector<Tensor>{sum};
  }));
  ops.push_back(Case(CopyRecord(kNumel, DType::kF32, DType::kBf16), [](Device& d) {
    Tensor y = Values(d, {kNumel}, 1, DType::kBf16);
    Copy(Values(d, {kNumel}, 2), y);
    return std::vector<Tensor>{y};
  }));
  ops.back().name += "_rounded";
  ops.push_back(Case(ClipRecord(3), [](Device& d) {
    Tensor scalars = Constant(d, {kUpdateScalarCount}, 2.0f);
    Clip(Constant(d, {3}, 5.0f), 1.0f, scalars);
    return std::vector<Tensor>{scalars};
  }));
  ops.push_back(Case(Fp8ScalesRecord(37, 4), [](Device& d) {
    Tensor amax = Values(d, {4, 37}, 1);
    Fp8Scales scales = {Values(d, {37}, 2), Values(d, {37}, 3)};
    UpdateFp8Scales(Constant(d, {37}, 448.0f), amax, scales);
    return std::vector<Tensor>{amax, scales.scale, scales.inverse};
  }));
}

}  // namespace

std::vector<OpCase> EveryOpIn(DType dtype, DType gradient) {
  const Types types = {dtype, gradient};
  std::vector<OpCase> ops;
  AddProducts(ops, types);
  AddNorms(ops, types);
  AddHeadNorms(ops, types);
  AddActivations(ops, types);
  AddAttention(ops, types);
  AddEmbeddings(ops, types);
  AddCrossEntropy(ops, types);
  AddElementwise(ops, types);
  AddFp8(ops, types);
  AddFusedFp8(ops, types);
  for (OpCase& op : ops) op.name += fmt::format("_{}", Name(dtype));
  return ops;
}

std::vector<OpCase> EveryOp() {
  std::vector<OpCase> ops;
  AddScalars(ops);
  AddUpdate(ops, {});
  AddUpdate(ops, {.weight = DType::kBf16, .moments = DType::kBf16, .gradient = DType::kBf16});
  AddUpdate(ops, {.weight = DType::kBf16, .master = DType::kU16, .moments = DType::kF16});
  for (const auto& [dtype, gradient] : {Types{DType::kF32, DType::kF32},
                                        {DType::kBf16, DType::kBf16},
                                        {DType::kF16, DType::kF32}}) {
    const auto more = EveryOpIn(dtype, gradient);
    ops.insert(ops.end(), more.begin(), more.end());
  }
  return ops;
}

}  // namespace trimtab
