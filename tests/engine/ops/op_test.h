// What tests of ops share: devices to run on, guarded tensors, comparison, central differences.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/device/tensor.h"

namespace trimtab {

/// How far a result may be from the reference in double, relative to the value plus the root mean
/// square of all values.
struct Tolerance {
  double elementwise;  // a few roundings
  double reduction;    // a sum over a row or a column
  double product;      // matrix products and what is made of them
};

/// One way to run an op: the same tests, instantiated at each file's foot.
struct OpTarget {
  std::string name;
  DeviceKind kind = DeviceKind::kCpu;
  int threads = 1;
  DType dtype = DType::kF32;

  Tolerance tolerance() const;
};

/// cpu with one worker and with several.
std::vector<OpTarget> CpuTargets();
/// The first GPU; its tests are skipped on a machine without one.
OpTarget CudaTarget();
std::string TargetName(const testing::TestParamInfo<OpTarget>& info);
std::unique_ptr<Device> MakeDevice(const OpTarget& target);

/// `count` values in [-scale, scale), the same for the same seed.
std::vector<float> RandomValues(int64_t count, uint32_t seed, float scale = 1.0f);
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
  Tolerance tolerance() const { return GetParam().tolerance(); }

  Tensor Input(const Shape& shape, std::span<const float> values);
  Tensor Ids(std::span<const int32_t> values);
  /// Filled with NaN: an op that leaves an element unwritten, or reads one, shows.
  Tensor Output(const Shape& shape);
  std::vector<float> Read(const Tensor& tensor);

 private:
  Tensor Guarded(const Shape& shape, DType dtype);

  std::unique_ptr<Device> device_;
  std::vector<Tensor> guarded_;  // with their guards
};

}  // namespace trimtab
