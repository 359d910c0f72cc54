// Every implementation of attention against its formula in double, on a GPU or, compiled for the
// host, under emulation. What an implementation refuses is skipped by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "engine/base/float16.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/cuda/attention/attention_kernels.h"

#ifdef TRIMTAB_CUDA_EMULATION
#include "engine/device/cuda/emulation/emulated_device.h"
#else
#include "engine/device/cuda/cuda_device.h"
#endif

namespace trimtab {
namespace {

constexpr MemoryTag kTag = MemoryTag::kActivations;

struct Case {
  AttentionImplementation implementation;
  DType dtype;
};

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  return std::string(Name(info.param.implementation)) + "_" + std::string(Name(info.param.dtype));
}

// How far a result may be from the reference in double, relative to the value plus the root mean
// square of all: its own rounding to the storage type, and sums that were rounded differently.
double Tolerance(const Case& c) {
  const double one = c.dtype == DType::kBf16 ? 0x1p-8 : c.dtype == DType::kF16 ? 0x1p-11 : 1e-5;
  return c.implementation == AttentionImplementation::kSimple ? one : 2 * one;
}
constexpr double kLogSumExpTolerance = 1e-5;  // always fp32

// At, below and past the tiles of every kernel (16, 32, 64, 128 rows), plain and grouped heads.
std::vector<AttentionShape> Shapes() {
  return {{.rows = {2, 1}, .heads = 1, .kv_heads = 1, .head_size = 64},
          {.rows = {1, 64}, .heads = 2, .kv_heads = 1, .head_size = 64},
          {.rows = {2, 131}, .heads = 4, .kv_heads = 2, .head_size = 64},
          {.rows = {1, 200}, .heads = 2, .kv_heads = 2, .head_size = 64},
          {.rows = {2, 33}, .heads = 3, .kv_heads = 1, .head_size = 128},
          {.rows = {1, 128}, .heads = 1, .kv_heads = 1, .head_size = 128},
          {.rows = {1, 260}, .heads = 2, .kv_heads = 1, .head_size = 128},
          {.rows = {1, 37}, .heads = 2, .kv_heads = 1, .head_size = 5},
          {.rows = {1, 9}, .heads = 1, .kv_heads = 1, .head_size = 300},
          {.rows = {1, 70}, .heads = 2, .kv_heads = 2, .head_size = 24, .value_head_size = 16}};
}

std::vector<float> Normal(int64_t count, uint32_t seed, float deviation) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(0.0f, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = distribution(generator);
  return values;
}

Tensor Filled(Device& device, const Shape& shape, DType dtype, std::span<const float> values) {
  Tensor tensor = Tensor::Empty(device, shape, dtype, kTag);
  CopyFromHost(tensor, values);
  return tensor;
}

Tensor NanFilled(Device& device, const Shape& shape, DType dtype) {
  return Filled(device, shape, dtype,
                std::vector<float>(static_cast<size_t>(shape.numel()), std::nanf("")));
}

std::vector<float> Read(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  CopyToHost(tensor, values);
  return values;
}

// `sizes`: to hold an error against, instead of the value.
void ExpectClose(const Tensor& actual_tensor, std::span<const double> expected, double tolerance,
                 const char* what, std::span<const double> sizes = {}) {
  const std::vector<float> actual = Read(actual_tensor);
  double squares = 0;
  for (const double value : expected) squares += value * value;
  const double rms = std::sqrt(squares / static_cast<double>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]);
    const double size = (sizes.empty() ? std::abs(expected[i]) : sizes[i]) + rms;
    // Written so that NaN fails.
    ASSERT_TRUE(error <= tolerance * size)
        << what << "[" << i << "] is " << actual[i] << ", expected " << expected[i] << ", off by "
        << error / size << ", allowed " << tolerance;
  }
}

double Rounded(DType dtype, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == DType::kBf16) return Bf16ToFloat(FloatToBf16(single));
  if (dtype == DType::kF16) return F16ToFloat(FloatToF16(single));
  return single;
}

// Where documents begin in packed sequences: within tiles, at their edges, in neighbouring rows.
constexpr int64_t kBegins[] = {0, 3, 64, 65, 128, 190};

// The position of a token of a packed sequence in its document.
int64_t PackedPosition(int64_t offset) {
  int64_t begin = 0;
  for (const int64_t each : kBegins) begin = each <= offset ? each : begin;
  return offset - begin;
}

// In double, but with probabilities and gradients of scores rounded where an implementation rounds
// them, `inner` being the type in which they enter a matrix product; and the gradients are those of
// the out that the implementation gave, which is rounded as well.
struct Reference {
  bool packed;
  std::vector<double> out;
  std::vector<double> log_sum_exp;
  std::vector<double> dqkv;
  std::vector<double> sizes;  // sums of the magnitudes of what dqkv is the sum of

  Reference(const AttentionShape& s, DType dtype, DType inner, std::vector<float> qkv,
            std::vector<float> dout, const std::vector<float>& given_out)
      : packed(s.rows.positions.defined()),
        out(dout.size()),
        log_sum_exp(static_cast<size_t>(s.rows.batch * s.heads * s.rows.sequence)),
        dqkv(qkv.size()),
        sizes(qkv.size()) {
    for (float& value : qkv) value = static_cast<float>(Rounded(dtype, value));
    for (float& value : dout) value = static_cast<float>(Rounded(dtype, value));
    for (int64_t b = 0; b < s.rows.batch; ++b) {
      for (int64_t h = 0; h < s.heads; ++h) {
        for (int64_t t = 0; t < s.rows.sequence; ++t)
          AddRow(s, inner, qkv, dout, given_out, b, h, t);
      }
    }
  }

 private:
  void AddRow(const AttentionShape& s, DType inner, const std::vector<float>& qkv,
              const std::vector<float>& dout, const std::vector<float>& given_out, int64_t b,
              int64_t h, int64_t t) {
    const int64_t size = s.head_size;
    const double scale = 1.0 / std::sqrt(static_cast<double>(size));
    const auto at = [&](int64_t token, int64_t head) {
      return static_cast<size_t>((b * s.rows.sequence + token) * s.qkv_size() + head * size);
    };
    const auto key_head = s.heads + h / (s.heads / s.kv_heads);
    const auto value_at = [&](int64_t token) {
      return at(token, s.heads + s.kv_heads) +
             static_cast<size_t>(h / (s.heads / s.kv_heads) * s.value_size());
    };
    const float* query = &qkv[at(t, h)];
    const auto out_at =
        static_cast<size_t>((b * s.rows.sequence + t) * s.out_size() + h * s.value_size());
    const float* row_dout = &dout[out_at];
    const auto dot = [](int64_t columns, const float* x, const float* y) {
      double sum = 0;
      for (int64_t d = 0; d < columns; ++d) sum += double{x[d]} * y[d];
      return sum;
    };

    const int64_t first = packed ? t - PackedPosition(t) : 0;
    std::vector<double> scores(static_cast<size_t>(first), -INFINITY);
    for (int64_t u = first; u <= t; ++u)
      scores.push_back(dot(size, query, &qkv[at(u, key_head)]) * scale);
    const double highest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - highest);
    log_sum_exp[static_cast<size_t>((b * s.heads + h) * s.rows.sequence + t)] =
        highest + std::log(sum);
    for (int64_t u = first; u <= t; ++u) {
      const double weight = Rounded(inner, std::exp(scores[static_cast<size_t>(u)] - highest));
      for (int64_t d = 0; d < s.value_size(); ++d)
        out[out_at + static_cast<size_t>(d)] +=
            weight / sum * qkv[value_at(u) + static_cast<size_t>(d)];
    }
    const double row_sum = dot(s.value_size(), &given_out[out_at], row_dout);
    for (int64_t u = first; u <= t; ++u) {
      const double probability = std::exp(scores[static_cast<size_t>(u)] - highest) / sum;
      const double dprobability = dot(s.value_size(), row_dout, &qkv[value_at(u)]);
      const double dscore = Rounded(inner, probability * (dprobability - row_sum)) * scale;
      for (int64_t d = 0; d < size; ++d) {
        const auto i = static_cast<size_t>(d);
        AddTo(at(t, h) + i, dscore * qkv[at(u, key_head) + i]);
        AddTo(at(u, key_head) + i, dscore * query[i]);
      }
      for (int64_t d = 0; d < s.value_size(); ++d) {
        const auto i = static_cast<size_t>(d);
        AddTo(value_at(u) + i, Rounded(inner, probability) * row_dout[i]);
      }
    }
  }

  void AddTo(size_t i, double term) {
    dqkv[i] += term;
    sizes[i] += std::abs(term);
  }
};

// What one pass forward and back gives.
struct Results {
  Tensor out;
  Tensor log_sum_exp;
  Tensor dqkv;
};

class AttentionKernelsTest : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
#ifdef TRIMTAB_CUDA_EMULATION
    device_ = std::make_unique<EmulatedDevice>(nullptr);
#else
    const CudaAvailability found = FindDevicesOfDriver();
    missing_ = found.reason;
    if (found.device_count > 0) device_ = std::make_unique<CudaDevice>(CudaDeviceOptions{});
#endif
  }
  static void TearDownTestSuite() { device_ = nullptr; }

  void SetUp() override {
    if (device_ == nullptr) GTEST_SKIP() << missing_;
  }

  std::string Refusal(const AttentionShape& shape) {
    for (const auto pass : {AttentionPass::kForward, AttentionPass::kBackward}) {
      const std::string refusal =
          AttentionRefusal(*device_, GetParam().implementation, pass, shape, GetParam().dtype);
      if (!refusal.empty()) return refusal;
    }
    return "";
  }

  // The positions of packed documents.
  static Tensor Packed(const RowLayout& rows) {
    std::vector<int32_t> list;
    for (int64_t row = 0; row < rows.rows(); ++row) {
      list.push_back(static_cast<int32_t>(PackedPosition(row % rows.sequence)));
    }
    Tensor positions = Tensor::Empty(*device_, {rows.rows()}, DType::kI32, kTag);
    CopyFromHost(positions, list);
    return positions;
  }

  Results Run(const AttentionShape& s, std::span<const float> qkv_values,
              std::span<const float> dout_values) {
    const DType dtype = GetParam().dtype;
    const Shape qkv_shape = {s.tokens(), s.qkv_size()};
    const Shape out_shape = {s.tokens(), s.out_size()};
    const Tensor qkv = Filled(*device_, qkv_shape, dtype, qkv_values);
    const Tensor dout = Filled(*device_, out_shape, dtype, dout_values);
    Results r = {NanFilled(*device_, out_shape, dtype),
                 NanFilled(*device_, {s.rows.batch, s.heads, s.rows.sequence}, DType::kF32),
                 NanFilled(*device_, qkv_shape, dtype)};
    RunAttentionForward(*device_, GetParam().implementation,
                        {s, dtype, qkv.raw(), r.out.raw(), r.log_sum_exp.f32()});
    const int64_t bytes = AttentionBackwardWorkspaceBytes(s, device_->executor());
    const Tensor scratch =
        Tensor::Empty(*device_, {bytes / SizeOf(DType::kF32)}, DType::kF32, kTag);
    RunAttentionBackward(*device_, GetParam().implementation,
                         {s, dtype, qkv.raw(), r.out.raw(), r.log_sum_exp.f32(), dout.raw(),
                          r.dqkv.raw(), scratch.f32()});
    device_->Synchronize();
    return r;
  }

  Reference Expected(const AttentionShape& s, const std::vector<float>& qkv,
                     const std::vector<float>& dout, const Results& actual) {
    const bool rounds = GetParam().implementation != AttentionImplementation::kSimple;
    return {s,    GetParam().dtype, rounds ? GetParam().dtype : DType::kF32, qkv,
            dout, Read(actual.out)};
  }

  // Where cuDNN rounds in its backward pass it does not say: each term may be off by its own
  // rounding, and the first tokens, which all others see, have many.
  static std::span<const double> SizesOfSums(const Reference& expected) {
    if (GetParam().implementation != AttentionImplementation::kCudnn) return {};
    return expected.sizes;
  }

  static inline std::unique_ptr<Device> device_;
  static inline std::string missing_;
};

TEST_P(AttentionKernelsTest, MatchesItsFormulaAndDerivative) {
  std::string refusal;
  int ran = 0;
  for (const bool packed : {false, true}) {
    for (AttentionShape s : Shapes()) {
      SCOPED_TRACE(testing::Message()
                   << "B " << s.rows.batch << ", T " << s.rows.sequence << ", heads " << s.heads
                   << "/" << s.kv_heads << ", D " << s.head_size << (packed ? ", packed" : ""));
      if (packed) s.rows.positions = Packed(s.rows);
      refusal = Refusal(s);
      if (!refusal.empty()) continue;
      ++ran;
      const auto qkv = Normal(s.tokens() * s.qkv_size(), 1, 1.0f);
      const auto dout = Normal(s.tokens() * s.out_size(), 2, 1.0f);
      const Results actual = Run(s, qkv, dout);
      const Reference expected = Expected(s, qkv, dout, actual);
      const double tolerance = Tolerance(GetParam());
      ExpectClose(actual.out, expected.out, tolerance, "out");
      ExpectClose(actual.log_sum_exp, expected.log_sum_exp, kLogSumExpTolerance, "log_sum_exp");
      ExpectClose(actual.dqkv, expected.dqkv, tolerance, "dqkv", SizesOfSums(expected));
    }
  }
  if (ran == 0) GTEST_SKIP() << refusal;
}

// Scores of several hundred, of either sign: the running maximum has to carry the exponentials.
TEST_P(AttentionKernelsTest, SurvivesScoresOfAnySize) {
  const AttentionShape s = {.rows = {1, 150}, .heads = 1, .kv_heads = 1, .head_size = 64};
  const std::string refusal = Refusal(s);
  if (!refusal.empty()) GTEST_SKIP() << refusal;
  const auto qkv = Normal(s.tokens() * s.qkv_size(), 3, 12.0f);
  const auto dout = Normal(s.tokens() * s.head_size, 4, 1.0f);
  const Results actual = Run(s, qkv, dout);
  ExpectClose(actual.log_sum_exp, Expected(s, qkv, dout, actual).log_sum_exp, kLogSumExpTolerance,
              "log_sum_exp");
  for (const float value : Read(actual.out)) ASSERT_LT(std::abs(value), 100.0f);
  for (const float value : Read(actual.dqkv)) ASSERT_TRUE(std::isfinite(value));
}

TEST_P(AttentionKernelsTest, OwnKernelsGiveEqualBits) {
  if (GetParam().implementation == AttentionImplementation::kCudnn)
    GTEST_SKIP() << "cuDNN's backward pass does not promise it";
  const AttentionShape s = {.rows = {1, 131}, .heads = 2, .kv_heads = 1, .head_size = 64};
  const std::string refusal = Refusal(s);
  if (!refusal.empty()) GTEST_SKIP() << refusal;
  const auto qkv = Normal(s.tokens() * s.qkv_size(), 5, 1.0f);
  const auto dout = Normal(s.tokens() * s.out_size(), 6, 1.0f);
  const Results first = Run(s, qkv, dout);
  const Results second = Run(s, qkv, dout);
  EXPECT_EQ(Read(first.out), Read(second.out));
  EXPECT_EQ(Read(first.dqkv), Read(second.dqkv));
}

// A change of the last token must not show before it: the causal mask at every tile.
TEST_P(AttentionKernelsTest, NoTokenSeesTheNext) {
  const AttentionShape s = {.rows = {1, 129}, .heads = 1, .kv_heads = 1, .head_size = 64};
  const std::string refusal = Refusal(s);
  if (!refusal.empty()) GTEST_SKIP() << refusal;
  const auto dout = Normal(s.tokens() * s.head_size, 8, 1.0f);
  auto qkv = Normal(s.tokens() * s.qkv_size(), 7, 1.0f);
  const auto before = Read(Run(s, qkv, dout).out);
  for (int64_t i = (s.tokens() - 1) * s.qkv_size(); i < s.tokens() * s.qkv_size(); ++i)
    qkv[static_cast<size_t>(i)] += 1.0f;
  const auto after = Read(Run(s, qkv, dout).out);
  const auto last = static_cast<size_t>((s.tokens() - 1) * s.head_size);
  EXPECT_EQ(std::memcmp(before.data(), after.data(), last * sizeof(float)), 0);
  EXPECT_NE(before[last], after[last]);
}

TEST_P(AttentionKernelsTest, IsChosenOnlyWhereItCanRun) {
  for (const AttentionShape& s : Shapes()) {
    for (const auto pass : {AttentionPass::kForward, AttentionPass::kBackward}) {
      const auto chosen = ChooseAttention(*device_, pass, s, GetParam().dtype);
      EXPECT_EQ(AttentionRefusal(*device_, chosen, pass, s, GetParam().dtype), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Implementations, AttentionKernelsTest,
                         testing::Values(Case{AttentionImplementation::kCudnn, DType::kBf16},
                                         Case{AttentionImplementation::kCudnn, DType::kF16},
                                         Case{AttentionImplementation::kMma, DType::kBf16},
                                         Case{AttentionImplementation::kMma, DType::kF16},
                                         Case{AttentionImplementation::kSimple, DType::kF32},
                                         Case{AttentionImplementation::kSimple, DType::kBf16},
                                         Case{AttentionImplementation::kSimple, DType::kF16}),
                         CaseName);

}  // namespace
}  // namespace trimtab
