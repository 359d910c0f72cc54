// NumericError: training arrived at figures that are no numbers.
#pragma once

#include <string>

#include "engine/base/error.h"

namespace trimtab {

/// A loss or gradient norm that is not finite where the step cannot be skipped: the configuration
/// does not train.
class NumericError : public Error {
 public:
  explicit NumericError(const std::string& message) : Error(ExitCode::kInfeasible, message) {}
};

}  // namespace trimtab
