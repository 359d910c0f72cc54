// What a search for serving knows of the loss of quality: it is told, or measures it with the
// model's own weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "search/serving/serving_problem.h"
#include "tools/cli/serving_flags.h"
#include "tools/validation/held_out.h"

namespace trimtab {

class ServingQualityFlags {
 public:
  void Declare(FlagSet& flags);

  /// Says where the quality of the problem's configurations comes from, and puts in what is told,
  /// or how to measure it, which this must outlive; its requirements are known. Throws UsageError
  /// where they limit it and nothing says it, or the other way round; InputError where weights or
  /// text will not do.
  void Resolve(ServingProblem& problem);

 private:
  /// "int8/fp32=1.004,..." Throws UsageError.
  void TakeTold(ServingProblem& problem) const;
  double Perplexity(WeightFormat weights, DType cache) const;
  /// Measures the perplexity so stored, in that of the original weights.
  double Rise(WeightFormat weights, DType cache);

  const FlagSet* flags_ = nullptr;
  std::vector<std::string> told_;
  SourceFlags source_;
  HeldOutFlags held_out_;
  std::unique_ptr<WeightSource> weights_{};  // where it is measured
  std::vector<int32_t> text_{};
  double original_ = 0;  // the perplexity of the original weights; measured once it is needed
};

}  // namespace trimtab
