#include "tests/engine/ops/op_test.h"

#include <cmath>
#include <limits>
#include <random>

#include "engine/device/cuda/loader.h"

namespace trimtab {
namespace {

constexpr int64_t kGuard = 32;  // elements before and after each tensor
constexpr float kSentinel = 1.2345678e30f;

}  // namespace

Tolerance OpTarget::tolerance() const {
  switch (dtype) {
    case DType::kF32:
      return {.elementwise = 1e-6, .reduction = 5e-6, .product = 1e-5};
    default:
      TRIMTAB_ASSERT(false, "no tolerance for {}", Name(dtype));
  }
}

std::vector<OpTarget> CpuTargets() {
  return {{.name = "cpu_fp32_1thread", .threads = 1},
          {.name = "cpu_fp32_2threads", .threads = 2},
          {.name = "cpu_fp32_5threads", .threads = 5}};
}

OpTarget CudaTarget() { return {.name = "cuda_fp32", .kind = DeviceKind::kCuda}; }

std::string TargetName(const testing::TestParamInfo<OpTarget>& info) { return info.param.name; }

std::unique_ptr<Device> MakeDevice(const OpTarget& target) {
  switch (target.kind) {
    case DeviceKind::kCpu:
      return MakeCpuDevice(target.threads);
    case DeviceKind::kMeta:
      return MakeMetaDevice(target.threads);
    case DeviceKind::kCuda:
      return MakeCudaDevice(0);
  }
  return nullptr;
}

std::vector<float> RandomValues(int64_t count, uint32_t seed, float scale) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> distribution(-scale, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = distribution(generator);
  return values;
}

std::vector<double> ToDouble(std::span<const float> values) {
  return {values.begin(), values.end()};
}

void ExpectClose(std::span<const float> actual, std::span<const double> expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double squares = 0;
  for (const double value : expected) squares += value * value;
  const double rms =
      std::sqrt(squares / std::max<double>(1.0, static_cast<double>(expected.size())));
  for (size_t i = 0; i < expected.size(); ++i) {
    const double allowed = tolerance * (std::abs(expected[i]) + rms);
    const double error = std::abs(static_cast<double>(actual[i]) - expected[i]);
    // Written so that NaN fails.
    ASSERT_TRUE(error <= allowed) << what << "[" << i << "] is " << actual[i] << ", expected "
                                  << expected[i] << ", off by " << error << " of " << allowed;
  }
}

std::vector<double> NumericGradient(std::vector<double> values,
                                    const std::function<double(std::span<const double>)>& loss) {
  constexpr double kStep = 1e-5;
  std::vector<double> gradient(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    values[i] = value + kStep;
    const double above = loss(values);
    values[i] = value - kStep;
    const double below = loss(values);
    values[i] = value;
    gradient[i] = (above - below) / (2 * kStep);
  }
  return gradient;
}

double Dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void OpTest::SetUp() {
  if (GetParam().kind == DeviceKind::kCuda && FindCudaDevices().device_count == 0) {
    GTEST_SKIP() << FindCudaDevices().reason;
  }
  device_ = MakeDevice(GetParam());
}

void OpTest::TearDown() {
  for (const Tensor& tensor : guarded_) {
    std::vector<float> guard(static_cast<size_t>(kGuard));
    const int64_t ends[] = {0, tensor.numel() - kGuard};
    for (const int64_t start : ends) {
      device_->CopyToHost(guard.data(), tensor.Slice(start, {kGuard}).raw(),
                          kGuard * SizeOf(DType::kF32));
      for (const float value : guard) ASSERT_EQ(value, kSentinel) << "an op wrote past a tensor";
    }
  }
}

Tensor OpTest::Guarded(const Shape& shape, DType dtype) {
  const int64_t numel = shape.numel();
  const Tensor whole =
      Tensor::Empty(*device_, {numel + 2 * kGuard}, dtype, MemoryTag::kActivations);
  const std::vector<float> sentinels(static_cast<size_t>(whole.numel()), kSentinel);
  device_->CopyFromHost(whole.raw(), sentinels.data(), whole.bytes());
  guarded_.push_back(whole);
  return whole.Slice(kGuard, shape);
}

Tensor OpTest::Input(const Shape& shape, std::span<const float> values) {
  Tensor tensor = Guarded(shape, DType::kF32);
  CopyFromHost(tensor, values);
  return tensor;
}

Tensor OpTest::Ids(std::span<const int32_t> values) {
  Tensor tensor = Guarded({static_cast<int64_t>(values.size())}, DType::kI32);
  CopyFromHost(tensor, values);
  return tensor;
}

Tensor OpTest::Output(const Shape& shape) {
  const std::vector<float> unwritten(static_cast<size_t>(shape.numel()),
                                     std::numeric_limits<float>::quiet_NaN());
  return Input(shape, unwritten);
}

std::vector<float> OpTest::Read(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  CopyToHost(tensor, values);
  return values;
}

}  // namespace trimtab
