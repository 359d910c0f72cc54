// What a fit found, as files of profiles and stacks like those that it began with.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cost_model/validation/fit.h"

namespace trimtab {

struct FittedFile {
  std::string path;  // "stacks/nemo.json"
  std::string text;
};

/// The built-in profiles and stacks with constants of `fits`, whole: put in their place, they
/// are what the program predicts with. A number that runs say little about is not called fitted.
std::vector<FittedFile> FittedFiles(std::span<const FitResult> fits);

}  // namespace trimtab
