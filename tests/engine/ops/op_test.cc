#include "tests/engine/ops/op_test.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "engine/base/float16.h"
#include "engine/base/float8.h"
#include "engine/device/cuda/loader.h"
#include "engine/ops/cuda/emulated_ops.h"

namespace trimtab {
namespace {

constexpr int64_t kGuardBytes = 128;  // before and after each tensor, which stay as aligned
// A large number, or NaN, in every type.
constexpr char kGuardByte = 0x7e;

/// One rounding to nearest at most changes a value by this much of it.
double UnitRoundoff(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0x1p-24;
    case DType::kBf16:
      return 0x1p-8;
    case DType::kF16:
      return 0x1p-11;
    case DType::kF8E4M3:
      return 0x1p-4;
    case DType::kF8E5M2:
      return 0x1p-3;
    default:
      TRIMTAB_ASSERT(false, "no tolerance for {}", Name(dtype));
  }
}

}  // namespace

Tolerance ToleranceOf(DType dtype, bool on_gpu) {
  // Hopper's tensor cores align the fp8 products that they add at once to the largest, and keep
  // some 14 bits of each (DeepSeek-V3 technical report, arXiv:2412.19437, section 3.5.2). The
  // largest is a few times their root mean square, and one result of thousands is off by four
  // deviations.
  const double fp8_sums = on_gpu ? 0x1p-10 : 0;
  // Arithmetic is fp32 whatever the storage, and the same formulas on every device: what fp32 needs
  // is measured, with a factor of a few to spare.
  const Tolerance fp32 = {.elementwise = 1e-6,
                          .reduction = 5e-6,
                          .product = 1e-5,
                          .chained = 1e-5,
                          .epilogue = 1e-5,
                          .fp8_sums = fp8_sums};
  if (dtype == DType::kF32) return fp32;
  // A result is rounded once on top. One made from a rounded intermediate result has that one's
  // error too, multiplied by what it is summed with: a few times the root mean square. For rows
  // that are not aligned cuBLASLt has kernels that round a product before its epilogue, and for
  // some none with an epilogue, so that comes as an op of its own. fp8 added to bf16 has been
  // seen rounded twice as well.
  const double u = UnitRoundoff(dtype);
  const double chained = fp32.chained + 4 * u;
  return {.elementwise = fp32.elementwise + u,
          .reduction = fp32.reduction + u,
          .product = fp32.product + u,
          .chained = chained,
          .epilogue = on_gpu ? chained : fp32.product + u,
          .fp8_sums = fp8_sums};
}

std::vector<OpTarget> InEveryType(const OpTarget& target) {
  std::vector<OpTarget> targets;
  const auto add = [&](const char* suffix, DType dtype, DType gradient) {
    targets.push_back(target);
    targets.back().name += suffix;
    targets.back().dtype = dtype;
    targets.back().gradient = gradient;
  };
  add("_fp32", DType::kF32, DType::kF32);
  add("_bf16", DType::kBf16, DType::kF32);
  add("_bf16_gradients", DType::kBf16, DType::kBf16);
  add("_fp16", DType::kF16, DType::kF32);
  return targets;
}

std::vector<OpTarget> CpuTargets() {
  std::vector<OpTarget> targets = InEveryType({.name = "cpu_2threads", .threads = 2});
  targets.push_back({.name = "cpu_1thread_fp32", .threads = 1});
  targets.push_back({.name = "cpu_5threads_fp32", .threads = 5});
  return targets;
}

std::vector<OpTarget> CudaTargets() {
  return InEveryType({.name = "cuda", .kind = DeviceKind::kCuda});
}

std::vector<OpTarget> EmulatedTargets() {
  const OpTarget target = {.name = "emulated",
                           .kind = DeviceKind::kCuda,
                           .make = [] { return MakeEmulatedDevice(); },
                           .slow = true};
  std::vector<OpTarget> targets = InEveryType(target);
  targets.push_back(target);
  targets.back().name += "_unaligned_bf16";
  targets.back().dtype = DType::kBf16;
  targets.back().unaligned = true;
  return targets;
}

std::vector<OpTarget> AllTargets() {
  std::vector<OpTarget> all = CpuTargets();
  for (const auto& targets : {CudaTargets(), EmulatedTargets()}) {
    all.insert(all.end(), targets.begin(), targets.end());
  }
  return all;
}

std::vector<OpTarget> OnlyFp32(const std::vector<OpTarget>& targets) {
  std::vector<OpTarget> kept;
  for (const OpTarget& target : targets) {
    if (target.dtype == DType::kF32) kept.push_back(target);
  }
  return kept;
}

std::string TargetName(const testing::TestParamInfo<OpTarget>& info) { return info.param.name; }

std::unique_ptr<Device> MakeDevice(const OpTarget& target) {
  if (target.make != nullptr) return target.make();
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

namespace {

uint32_t Encode(DType dtype, float value) {
  switch (dtype) {
    case DType::kBf16:
      return FloatToBf16(value);
    case DType::kF16:
      return FloatToF16(value);
    case DType::kF8E4M3:
      return FloatToE4M3(value);
    case DType::kF8E5M2:
      return FloatToE5M2(value);
    default:
      return std::bit_cast<uint32_t>(value);
  }
}

float Decode(DType dtype, uint32_t bits) {
  switch (dtype) {
    case DType::kBf16:
      return Bf16ToFloat(static_cast<uint16_t>(bits));
    case DType::kF16:
      return F16ToFloat(static_cast<uint16_t>(bits));
    case DType::kF8E4M3:
      return E4M3ToFloat(static_cast<uint8_t>(bits));
    case DType::kF8E5M2:
      return E5M2ToFloat(static_cast<uint8_t>(bits));
    default:
      return std::bit_cast<float>(bits);
  }
}

}  // namespace

std::vector<float> Rounded(DType dtype, std::vector<float> values) {
  for (float& value : values) value = Decode(dtype, Encode(dtype, value));
  return values;
}

std::vector<char> Encoded(DType dtype, std::span<const float> values) {
  const auto size = static_cast<size_t>(SizeOf(dtype));
  std::vector<char> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = Encode(dtype, values[i]);
    std::memcpy(&bytes[i * size], &bits, size);  // little endian: the low bytes come first
  }
  return bytes;
}

void Upload(const Tensor& tensor, std::span<const float> values) {
  ASSERT_EQ(tensor.numel(), static_cast<int64_t>(values.size()));
  const auto bytes = Encoded(tensor.dtype(), values);
  tensor.device().CopyFromHost(tensor.raw(), bytes.data(), tensor.bytes());
}

std::vector<float> Download(const Tensor& tensor) {
  const auto size = static_cast<size_t>(SizeOf(tensor.dtype()));
  std::vector<char> bytes(static_cast<size_t>(tensor.bytes()));
  tensor.device().CopyToHost(bytes.data(), tensor.raw(), tensor.bytes());
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &bytes[i * size], size);
    values[i] = Decode(tensor.dtype(), bits);
  }
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
  const OpTarget& target = GetParam();
  if (target.on_gpu() && FindCudaDevices().device_count == 0) {
    GTEST_SKIP() << FindCudaDevices().reason;
  }
  device_ = MakeDevice(target);
}

void OpTest::TearDown() {
  for (const Tensor& tensor : guarded_) {
    const std::vector<uint8_t> bytes = ReadBytes(tensor);
    const auto is_guard = [](uint8_t byte) { return byte == kGuardByte; };
    ASSERT_TRUE(std::all_of(bytes.begin(), bytes.begin() + kGuardBytes, is_guard) &&
                std::all_of(bytes.end() - kGuardBytes, bytes.end(), is_guard))
        << "an op wrote past a tensor";
  }
}

Tensor OpTest::Guarded(const Shape& shape, DType dtype) {
  const int64_t guard = kGuardBytes / SizeOf(dtype);
  const int64_t shift = GetParam().unaligned ? 1 : 0;
  const Tensor whole =
      Tensor::Empty(*device_, {shape.numel() + 2 * guard + shift}, dtype, MemoryTag::kActivations);
  const std::vector<char> bytes(static_cast<size_t>(whole.bytes()), kGuardByte);
  device_->CopyFromHost(whole.raw(), bytes.data(), whole.bytes());
  guarded_.push_back(whole);
  return whole.Slice(guard + shift, shape);
}

Tensor OpTest::Input(const Shape& shape, std::span<const float> values, DType stored) {
  Tensor tensor = Guarded(shape, stored);
  Upload(tensor, values);
  return tensor;
}

Tensor OpTest::Ids(std::span<const int32_t> values) {
  Tensor tensor = Guarded({static_cast<int64_t>(values.size())}, DType::kI32);
  CopyFromHost(tensor, values);
  return tensor;
}

Tensor OpTest::RawBits(std::span<const uint16_t> values) {
  const Tensor tensor = Guarded({static_cast<int64_t>(values.size())}, DType::kU16);
  device_->CopyFromHost(tensor.raw(), values.data(), tensor.bytes());
  return tensor;
}

Tensor OpTest::RawBytes(std::span<const uint8_t> values) {
  const Tensor tensor = Guarded({static_cast<int64_t>(values.size())}, DType::kI8);
  device_->CopyFromHost(tensor.raw(), values.data(), tensor.bytes());
  return tensor;
}

Tensor OpTest::Output(const Shape& shape, DType stored) {
  const std::vector<float> unwritten(static_cast<size_t>(shape.numel()),
                                     std::numeric_limits<float>::quiet_NaN());
  return Input(shape, unwritten, stored);
}

std::vector<float> OpTest::Read(const Tensor& tensor) { return Download(tensor); }

std::vector<uint8_t> OpTest::ReadBytes(const Tensor& tensor) {
  std::vector<uint8_t> bytes(static_cast<size_t>(tensor.bytes()));
  device_->CopyToHost(bytes.data(), tensor.raw(), tensor.bytes());
  return bytes;
}

}  // namespace trimtab
