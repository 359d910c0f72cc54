// Every op once, on any device: for tests of what holds for all of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/device/tensor.h"

namespace trimtab {

struct OpCase {
  std::string name;
  /// What the op must report.
  OpRecord record;
  /// Bytes of scratch it takes from a rank with this many threads.
  std::function<int64_t(int threads)> workspace_bytes;
  /// Runs the op on inputs that depend on nothing else; returns its outputs.
  std::function<std::vector<Tensor>(Device& device)> run;
};

std::vector<OpCase> EveryOp();

}  // namespace trimtab
