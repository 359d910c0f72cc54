#include "engine/infer/quantize/calibration.h"

#include <algorithm>
#include <cmath>

#include "engine/base/units.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/gemm.h"

namespace trimtab {
namespace {

constexpr int kPowers = 10;
// Means below this say nothing of what a column is worth.
constexpr double kLeastMagnitude = 1e-4;

/// magnitude^power of each column, such that the largest and the smallest multiply to 1.
std::vector<float> PowersOf(const LinearInputs& inputs, double power) {
  std::vector<double> scales;
  for (const double sum : inputs.magnitudes) {
    const double mean = sum / static_cast<double>(inputs.rows);
    scales.push_back(std::pow(std::max(mean, kLeastMagnitude), power));
  }
  const auto [least, most] = std::minmax_element(scales.begin(), scales.end());
  const double middle = std::sqrt(*least * *most);
  std::vector<float> result;
  for (const double scale : scales) result.push_back(static_cast<float>(scale / middle));
  return result;
}

/// What rounding W with these scales of its columns changes of it.
std::vector<float> Errors(WeightFormat format, std::span<const float> weights,
                          const std::vector<float>& scales) {
  const size_t columns = scales.size();
  std::vector<float> errors(weights.size());
  std::vector<float> row(columns);
  std::vector<float> numbers(columns);
  std::vector<float> group_scales(
      static_cast<size_t>(ScalesOf(format, static_cast<int64_t>(columns))));
  for (size_t first = 0; first < weights.size(); first += columns) {
    for (size_t i = 0; i < columns; ++i) row[i] = weights[first + i] * scales[i];
    RoundRow(format, row, numbers, group_scales);
    for (size_t i = 0; i < columns; ++i) {
      const float group =
          group_scales.empty() ? 1.0f : group_scales[i * group_scales.size() / columns];
      errors[first + i] = numbers[i] * group / scales[i] - weights[first + i];
    }
  }
  return errors;
}

Tensor Upload(Device& device, const Shape& shape, std::span<const float> values) {
  Tensor tensor = Tensor::Empty(device, shape, DType::kF32, MemoryTag::kWorkspace);
  CopyFromHost(tensor, values);
  return tensor;
}

}  // namespace

Calibration::Calibration(int64_t expected_expert_counts)
    : stride_(CeilDiv(expected_expert_counts, kSamples)) {}

void Calibration::OnForward(const std::string& name, const Tensor& x, const Tensor& /*weight*/) {
  LinearInputs& inputs = inputs_[name];
  inputs.columns = x.dim(1);
  inputs.magnitudes.resize(static_cast<size_t>(inputs.columns));
  std::vector<float> values(static_cast<size_t>(x.numel()));
  CopyToHost(x, values);
  for (int64_t row = 0; row < x.dim(0); ++row, ++inputs.rows) {
    const auto first = values.begin() + row * inputs.columns;
    for (int64_t i = 0; i < inputs.columns; ++i) {
      inputs.magnitudes[static_cast<size_t>(i)] += std::abs(static_cast<double>(first[i]));
    }
    if (inputs.rows % stride_ != 0) continue;
    inputs.samples.insert(inputs.samples.end(), first, first + inputs.columns);
  }
}

const LinearInputs* Calibration::Find(const std::string& name) const {
  const auto found = inputs_.find(name);
  return found == inputs_.end() ? nullptr : &found->second;
}

std::vector<float> ChooseColumnScales(WeightFormat format, std::span<const float> weights,
                                      const LinearInputs& inputs, Device& device) {
  const int64_t columns = inputs.columns;
  const int64_t rows = std::ssize(weights) / columns;
  const int64_t samples = std::ssize(inputs.samples) / columns;
  const Tensor x = Upload(device, {samples, columns}, inputs.samples);
  Tensor y = Tensor::Empty(device, {samples, rows}, DType::kF32, MemoryTag::kWorkspace);
  Tensor sum = Tensor::Empty(device, {1}, DType::kF32, MemoryTag::kWorkspace);
  std::vector<float> best;
  float least = 0;
  for (int i = 0; i <= kPowers; ++i) {
    std::vector<float> scales = PowersOf(inputs, static_cast<double>(i) / kPowers);
    const Tensor errors = Upload(device, {rows, columns}, Errors(format, weights, scales));
    Gemm(x, Transpose::kNo, errors, Transpose::kYes, y);
    SumSquares(y, sum);
    float error = 0;
    CopyToHost(sum, std::span(&error, 1));
    if (i > 0 && error >= least) continue;
    least = error;
    best = i == 0 ? std::vector<float>() : std::move(scales);
  }
  return best;
}

}  // namespace trimtab
