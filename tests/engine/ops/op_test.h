// What tests of ops share: devices and storage types to run over, guarded tensors, comparison,
// central differences.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "engine/device/tensor.h"

namespace trimtab {

/// How far a result may be from the reference in double, relative to the value plus the root mean
/// square of all values. References are computed from the inputs as they are stored.
struct Tolerance {
  double elementwise;  // a few roundings
  double reduction;    // a sum over a row or a column
  double product;      // matrix products and what is made of them
  double chained;      // what is computed from another op's result, which has been rounded
  double epilogue;     // what a product is made into, or gets added, before it is stored
  double fp8_sums;     // more, where fp8 is multiplied
};

/// The tolerance table: of results that are stored in `dtype`, and `on_gpu` made by its libraries.
Tolerance ToleranceOf(DType dtype, bool on_gpu = false);

/// One way to run an op: the same tests, instantiated at each file's foot.
struct OpTarget {
  std::string name;
  DeviceKind kind = DeviceKind::kCpu;
  int threads = 1;
  DType dtype = DType::kF32;     // of activations and weights
  DType gradient = DType::kF32;  // of weights' gradients
  /// Makes the device; null for those that MakeDevice knows by kind.
  std::unique_ptr<Device> (*make)() = nullptr;
  /// Tensors begin one element past what is aligned.
  bool unaligned = false;
  /// Runs so slowly that tests leave out their largest sizes: see OpTest::Skips.
  bool slow = false;

  bool on_gpu() const { return kind == DeviceKind::kCuda && make == nullptr; }
};

/// cpu with one worker and with several, in every storage type.
std::vector<OpTarget> CpuTargets();
/// The first GPU, in every storage type; its tests are skipped on a machine without one.
std::vector<OpTarget> CudaTargets();
/// CUDA kernels run on the host.
std::vector<OpTarget> EmulatedTargets();
/// All of them.
std::vector<OpTarget> AllTargets();
/// Those of `targets` that store in fp32: for ops that choose their types themselves.
std::vector<OpTarget> OnlyFp32(const std::vector<OpTarget>& targets);

/// `target` in the storage types that layers use: fp32, bf16, bf16 with bf16 gradients, fp16. Its
/// name gets the type's.
std::vector<OpTarget> InEveryType(const OpTarget& target);

/// How test reports show a target.
inline void PrintTo(const OpTarget& target, std::ostream* out) { *out << target.name; }
std::string TargetName(const testing::TestParamInfo<OpTarget>& info);
std::unique_ptr<Device> MakeDevice(const OpTarget& target);

/// `count` values in [-scale, scale), the same for the same seed.
std::vector<float> RandomValues(int64_t count, uint32_t seed, float scale = 1.0f);
/// The same values as `dtype` stores them: bf16, fp16 or fp8 rounded to nearest even.
std::vector<float> Rounded(DType dtype, std::vector<float> values);
/// The bytes of values as `dtype` stores them.
std::vector<char> Encoded(DType dtype, std::span<const float> values);

/// Copies floats into a tensor of any floating point type, rounded to it, and out of one.
void Upload(const Tensor& tensor, std::span<const float> values);
std::vector<float> Download(const Tensor& tensor);

std::vector<double> ToDouble(std::span<const float> values);

/// Fails where `actual` is further from `expected` than `tolerance` allows.
void ExpectClose(std::span<const float> actual, std::span<const double> expected, double tolerance,
                 const std::string& what);

/// d loss / d values by central differences in double.
std::vector<double> NumericGradient(std::vector<double> values,
                                    const std::function<double(std::span<const double>)>& loss);

/// Sum of a[i] * b[i]: a scalar loss whose gradient with respect to a is b.
double Dot(std::span<const double> a, std::span<const double> b);

/// A fixture over OpTarget. Every tensor it makes lies between two guards that no op may touch.
class OpTest : public testing::TestWithParam<OpTarget> {
 protected:
  void SetUp() override;
  void TearDown() override;

  Device& device() { return *device_; }
  /// What activations and weights are stored in, and weights' gradients.
  DType dtype() const { return GetParam().dtype; }
  DType gradient_dtype() const { return GetParam().gradient; }
  /// Of results in `stored`; without it, in dtype().
  Tolerance tolerance(DType stored) const { return ToleranceOf(stored, GetParam().on_gpu()); }
  Tolerance tolerance() const { return tolerance(dtype()); }
  /// Whether to leave out a case of so many elements here.
  bool Skips(int64_t elements) const { return GetParam().slow && elements > 20000; }

  /// Random values that dtype() or gradient_dtype() can store.
  std::vector<float> Values(int64_t count, uint32_t seed, float scale = 1.0f) const {
    return Rounded(dtype(), RandomValues(count, seed, scale));
  }
  std::vector<float> GradientValues(int64_t count, uint32_t seed, float scale = 1.0f) const {
    return Rounded(gradient_dtype(), RandomValues(count, seed, scale));
  }

  /// Without a type, of dtype(). Values must be such that the type can store them.
  Tensor Input(const Shape& shape, std::span<const float> values, DType stored);
  Tensor Input(const Shape& shape, std::span<const float> values) {
    return Input(shape, values, dtype());
  }
  Tensor Ids(std::span<const int32_t> values);
  Tensor RawBits(std::span<const uint16_t> values);
  /// int8.
  Tensor RawBytes(std::span<const uint8_t> values);
  /// Filled with NaN: an op that leaves an element unwritten, or reads one, shows.
  Tensor Output(const Shape& shape, DType stored);
  Tensor Output(const Shape& shape) { return Output(shape, dtype()); }
  std::vector<float> Read(const Tensor& tensor);
  /// As they are stored, in whatever type.
  std::vector<uint8_t> ReadBytes(const Tensor& tensor);

 private:
  Tensor Guarded(const Shape& shape, DType dtype);

  std::unique_ptr<Device> device_;
  std::vector<Tensor> guarded_;  // with their guards
};

}  // namespace trimtab
