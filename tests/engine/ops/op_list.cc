#include "tests/engine/ops/op_list.h"

#include "engine/ops/activation.h"
#include "engine/ops/adamw.h"
#include "engine/ops/attention.h"
#include "engine/ops/cross_entropy.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/embedding.h"
#include "engine/ops/gemm.h"
#include "engine/ops/norm.h"
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

Tensor Values(Device& device, const Shape& shape, uint32_t seed) {
  Tensor tensor = Tensor::Empty(device, shape, DType::kF32, MemoryTag::kActivations);
  CopyFromHost(tensor, RandomValues(shape.numel(), seed));
  return tensor;
}

Tensor Tokens(Device& device, int64_t count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(i * 5 % kVocab));
  Tensor tensor = Tensor::Empty(device, {count}, DType::kI32, MemoryTag::kActivations);
  CopyFromHost(tensor, ids);
  return tensor;
}

OpCase Case(const OpRecord& record, std::function<std::vector<Tensor>(Device&)> run) {
  return {std::string(Name(record.kind)), record, [](int) { return int64_t{0}; }, std::move(run)};
}

const Shape kMatrix = {kRows, kColumns};
const Shape kVector = {kColumns};
const Shape kStatistics = {kRows};

void AddProducts(std::vector<OpCase>& ops) {
  ops.push_back(Case(GemmRecord(kRows, 77, kColumns, false), [](Device& d) {
    Tensor c = Values(d, {kRows, 77}, 1);
    Gemm(Values(d, kMatrix, 2), Transpose::kNo, Values(d, {77, kColumns}, 3), Transpose::kYes, c,
         false, Values(d, {77}, 4));
    return std::vector<Tensor>{c};
  }));
  ops.push_back(Case(GemmRecord(kRows, 77, kColumns, true), [](Device& d) {
    Tensor c = Values(d, {kRows, 77}, 1);
    Gemm(Values(d, kMatrix, 2), Transpose::kNo, Values(d, {kColumns, 77}, 3), Transpose::kNo, c,
         true);
    return std::vector<Tensor>{c};
  }));
  ops.back().name += "_accumulate";
  ops.push_back(Case(BiasBackwardRecord(kRows, kColumns), [](Device& d) {
    Tensor dbias = Values(d, kVector, 1);
    BiasBackward(Values(d, kMatrix, 2), dbias, true);
    return std::vector<Tensor>{dbias};
  }));
}

void AddNorms(std::vector<OpCase>& ops) {
  ops.push_back(Case(LayerNormForwardRecord(kRows, kColumns), [](Device& d) {
    Tensor y = Values(d, kMatrix, 1);
    Tensor mean = Values(d, kStatistics, 2);
    Tensor rstd = Values(d, kStatistics, 3);
    LayerNormForward(Values(d, kMatrix, 4), Values(d, kVector, 5), Values(d, kVector, 6), 1e-5, y,
                     mean, rstd);
    return std::vector<Tensor>{y, mean, rstd};
  }));
  ops.push_back(Case(LayerNormBackwardRecord(kRows, kColumns), [](Device& d) {
    Tensor dx = Values(d, kMatrix, 1);
    Tensor dweight = Values(d, kVector, 2);
    Tensor dbias = Values(d, kVector, 3);
    LayerNormBackward(Values(d, kMatrix, 4), Values(d, kMatrix, 5), Values(d, kVector, 6),
                      Values(d, kStatistics, 7), Values(d, kStatistics, 8), dx, dweight, dbias,
                      true);
    return std::vector<Tensor>{dx, dweight, dbias};
  }));
  ops.push_back(Case(RmsNormForwardRecord(kRows, kColumns), [](Device& d) {
    Tensor y = Values(d, kMatrix, 1);
    Tensor rstd = Values(d, kStatistics, 3);
    RmsNormForward(Values(d, kMatrix, 4), Values(d, kVector, 5), 1e-5, y, rstd);
    return std::vector<Tensor>{y, rstd};
  }));
  ops.push_back(Case(RmsNormBackwardRecord(kRows, kColumns), [](Device& d) {
    Tensor dx = Values(d, kMatrix, 1);
    Tensor dweight = Values(d, kVector, 2);
    RmsNormBackward(Values(d, kMatrix, 4), Values(d, kMatrix, 5), Values(d, kVector, 6),
                    Values(d, kStatistics, 8), dx, dweight, false);
    return std::vector<Tensor>{dx, dweight};
  }));
}

void AddActivations(std::vector<OpCase>& ops) {
  ops.push_back(Case(GeluForwardRecord(kRows, kColumns), [](Device& d) {
    Tensor y = Values(d, kMatrix, 1);
    GeluForward(Values(d, kMatrix, 2), y);
    return std::vector<Tensor>{y};
  }));
  ops.push_back(Case(GeluBackwardRecord(kRows, kColumns), [](Device& d) {
    Tensor dx = Values(d, kMatrix, 1);
    GeluBackward(Values(d, kMatrix, 2), dx, dx);
    return std::vector<Tensor>{dx};
  }));
  ops.push_back(Case(SwiGluForwardRecord(kRows, kColumns), [](Device& d) {
    Tensor y = Values(d, kMatrix, 1);
    SwiGluForward(Values(d, {kRows, 2 * kColumns}, 2), y);
    return std::vector<Tensor>{y};
  }));
  ops.push_back(Case(SwiGluBackwardRecord(kRows, kColumns), [](Device& d) {
    Tensor dgate_up = Values(d, {kRows, 2 * kColumns}, 1);
    SwiGluBackward(Values(d, {kRows, 2 * kColumns}, 2), Values(d, kMatrix, 3), dgate_up);
    return std::vector<Tensor>{dgate_up};
  }));
}

void AddAttention(std::vector<OpCase>& ops) {
  static const Shape kQkv = {kAttention.tokens(), kAttention.qkv_size()};
  static const Shape kOut = {kAttention.tokens(), kAttention.heads * kAttention.head_size};
  static const Shape kLogSumExp = {kAttention.batch, kAttention.heads, kAttention.sequence};
  ops.push_back(Case(AttentionForwardRecord(kAttention), [](Device& d) {
    Tensor out = Values(d, kOut, 1);
    Tensor log_sum_exp = Values(d, kLogSumExp, 2);
    AttentionForward(kAttention, Values(d, kQkv, 3), out, log_sum_exp);
    return std::vector<Tensor>{out, log_sum_exp};
  }));
  ops.back().workspace_bytes = [](int threads) {
    return AttentionForwardWorkspaceBytes(kAttention, threads);
  };
  ops.push_back(Case(AttentionBackwardRecord(kAttention), [](Device& d) {
    Tensor dqkv = Values(d, kQkv, 1);
    AttentionBackward(kAttention, Values(d, kQkv, 3), Values(d, kOut, 4), Values(d, kLogSumExp, 5),
                      Values(d, kOut, 6), dqkv);
    return std::vector<Tensor>{dqkv};
  }));
  ops.back().workspace_bytes = [](int threads) {
    return AttentionBackwardWorkspaceBytes(kAttention, threads);
  };
  ops.push_back(Case(RopeRecord(kAttention), [](Device& d) {
    Tensor qkv = Values(d, kQkv, 1);
    Rope(kAttention, 10000.0, false, qkv);
    return std::vector<Tensor>{qkv};
  }));
}

void AddEmbeddings(std::vector<OpCase>& ops) {
  ops.push_back(Case(EmbeddingForwardRecord(kRows, kColumns), [](Device& d) {
    Tensor out = Values(d, kMatrix, 1);
    EmbeddingForward(Tokens(d, kRows), Values(d, {kVocab, kColumns}, 2), 0, out);
    return std::vector<Tensor>{out};
  }));
  ops.push_back(Case(EmbeddingBackwardRecord(kRows, kColumns), [](Device& d) {
    Tensor dtable = Values(d, {kVocab, kColumns}, 1);
    EmbeddingBackward(Tokens(d, kRows), Values(d, kMatrix, 2), 0, dtable);
    return std::vector<Tensor>{dtable};
  }));
  ops.push_back(Case(PositionForwardRecord(kRows, kColumns), [](Device& d) {
    Tensor x = Values(d, kMatrix, 1);
    PositionForward(Values(d, {kVocab, kColumns}, 2), 3, kVocab, x);
    return std::vector<Tensor>{x};
  }));
  ops.push_back(Case(PositionBackwardRecord(kRows, kColumns), [](Device& d) {
    Tensor dtable = Values(d, {kVocab, kColumns}, 1);
    PositionBackward(Values(d, kMatrix, 2), 3, kVocab, dtable);
    return std::vector<Tensor>{dtable};
  }));
}

void AddCrossEntropy(std::vector<OpCase>& ops) {
  static constexpr VocabShard kShard = {.start = 0, .valid = kColumns - 2};
  ops.push_back(Case(CrossEntropyMaxRecord(kRows, kColumns), [](Device& d) {
    Tensor row_max = Values(d, kStatistics, 1);
    CrossEntropyMax(Values(d, kMatrix, 2), kShard, row_max);
    return std::vector<Tensor>{row_max};
  }));
  ops.push_back(Case(CrossEntropySumRecord(kRows, kColumns), [](Device& d) {
    Tensor sums = Values(d, {2, kRows}, 1);
    CrossEntropySum(Values(d, kMatrix, 2), Tokens(d, kRows), kShard, Values(d, kStatistics, 3),
                    sums);
    return std::vector<Tensor>{sums};
  }));
  ops.push_back(Case(CrossEntropyGradRecord(kRows, kColumns), [](Device& d) {
    Tensor logits = Values(d, kMatrix, 1);
    Tensor losses = Values(d, kStatistics, 2);
    Tensor sums = Values(d, {2, kRows}, 3);
    CopyFromHost(sums, std::vector<float>(static_cast<size_t>(2 * kRows), 2.0f));
    CrossEntropyGrad(Tokens(d, kRows), kShard, Values(d, kStatistics, 4), sums, 0.5f, logits,
                     losses);
    return std::vector<Tensor>{logits, losses};
  }));
}

void AddElementwise(std::vector<OpCase>& ops) {
  ops.push_back(Case(AddRecord(kNumel), [](Device& d) {
    Tensor y = Values(d, {kNumel}, 1);
    Add(Values(d, {kNumel}, 2), y);
    return std::vector<Tensor>{y};
  }));
  ops.push_back(Case(CopyRecord(kNumel), [](Device& d) {
    Tensor y = Values(d, {kNumel}, 1);
    Copy(Values(d, {kNumel}, 2), y);
    return std::vector<Tensor>{y};
  }));
  ops.push_back(Case(FillRecord(kNumel), [](Device& d) {
    Tensor x = Values(d, {kNumel}, 1);
    Fill(x, 3.0f);
    return std::vector<Tensor>{x};
  }));
  ops.push_back(Case(AddBiasRecord(kRows, kColumns), [](Device& d) {
    Tensor x = Values(d, kMatrix, 1);
    AddBias(Values(d, kVector, 2), x);
    return std::vector<Tensor>{x};
  }));
  ops.push_back(Case(SumSquaresRecord(kNumel), [](Device& d) {
    Tensor sum = Values(d, {1}, 1);
    const auto total = static_cast<float>(SumSquares(Values(d, {kNumel}, 2)));
    CopyFromHost(sum, std::vector<float>{total});
    return std::vector<Tensor>{sum};
  }));
  ops.push_back(Case(AdamWRecord(kNumel), [](Device& d) {
    Tensor parameter = Values(d, {kNumel}, 1);
    Tensor m = Values(d, {kNumel}, 2);
    Tensor v = Tensor::Empty(d, {kNumel}, DType::kF32, MemoryTag::kActivations);
    CopyFromHost(v, std::vector<float>(static_cast<size_t>(kNumel), 0.5f));
    const AdamWStep step = {.learning_rate = 0.1f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f};
    AdamW(step, Values(d, {kNumel}, 4), parameter, m, v);
    return std::vector<Tensor>{parameter, m, v};
  }));
}

}  // namespace

std::vector<OpCase> EveryOp() {
  std::vector<OpCase> ops;
  AddProducts(ops);
  AddNorms(ops);
  AddActivations(ops);
  AddAttention(ops);
  AddEmbeddings(ops);
  AddCrossEntropy(ops);
  AddElementwise(ops);
  return ops;
}

}  // namespace trimtab
