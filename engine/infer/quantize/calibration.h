// What the matrices of a model multiply when it reads a text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/layers/linear/linear_gemms.h"

namespace trimtab {

/// Inputs of one linear layer.
struct LinearInputs {
  int64_t columns = 0;
  int64_t rows = 0;                // that were seen
  std::vector<double> magnitudes;  // [columns]: sums of |x| over these rows
  std::vector<float> samples;      // [rows kept, columns], some of them
};

class Calibration final : public LinearObserver {
 public:
  /// Rows that are kept of each layer, spread over `expected_expert_counts`.
  static constexpr int64_t kSamples = 128;
  explicit Calibration(int64_t expected_expert_counts);

  void OnForward(const std::string& name, const Tensor& x, const Tensor& weight) override;
  void OnBackward(const std::string& /*name*/, const Tensor& /*dy*/) override {}

  /// By the layer's name; nullptr for a layer that was not seen.
  const LinearInputs* Find(const std::string& name) const;

 private:
  int64_t stride_;  // of the rows that are kept
  std::map<std::string, LinearInputs> inputs_;
};

/// Scales of the input columns of W [rows, columns] for rounding to `format` with the least squared
/// error of x W^T over the sampled x: powers of the mean magnitudes of x, from 0 (no scales: empty)
/// to 1 in steps of a tenth (AWQ, Lin et al., arXiv:2306.00978, section 3.2). W's columns are to be
/// multiplied by them, x's divided.
std::vector<float> ChooseColumnScales(WeightFormat format, std::span<const float> weights,
                                      const LinearInputs& inputs, Device& device);

}  // namespace trimtab
