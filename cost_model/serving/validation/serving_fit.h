// Fitting the numbers of GPUs and engines that serve to published rows.
//
// The maximum a posteriori estimate in logarithms: each number has a prior and bounds
// (ServingNumber), the error of a row counts linearly beyond 8 %, and a group of n rows as much as
// sqrt(n) rows. None is of a model, a row or a source.
#pragma once

#include <string>
#include <vector>

#include "cost_model/serving/validation/serving_case.h"

namespace trimtab {

/// What a row is left out with.
enum class LeftOut { kGroup, kModel, kGpu, kEngine };
/// "group", "model", "gpu", "engine".
std::string_view Name(LeftOut by);

/// All numbers.
struct ServingNumbers {
  std::vector<ServingGpu> gpus;
  std::vector<ServingEngine> engines;

  const ServingGpu& gpu(const std::string& generation) const;
  const ServingEngine& engine(const std::string& name) const;
};
/// Those inside the program, for the GPUs and engines of `cases`.
ServingNumbers BuiltinNumbers(const std::vector<ServingCase>& cases);

/// The same at their priors: as if there were no rows.
ServingNumbers NumbersAtPriors(const std::vector<ServingCase>& cases);

/// predicted / measured - 1 of what the row says: time per token, or tokens/s.
double ErrorOf(const ServingCase& of, const ServingNumbers& numbers);

struct ServingFit {
  ServingNumbers numbers;
  /// Of each case, by numbers that were fitted without the rows like it.
  std::vector<double> held_out_errors;
};

ServingNumbers FitServing(const std::vector<const ServingCase*>& cases,
                          const ServingNumbers& start);
/// Fits all cases, and again without each of the groups that `by` makes.
ServingFit FitServingHeldOut(const std::vector<ServingCase>& cases, LeftOut by);

}  // namespace trimtab
