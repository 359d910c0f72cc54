// Every op in every storage type, on any device: for tests of what holds for all of them.
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
  /// Bytes of scratch it takes.
  std::function<int64_t(const Executor& executor)> workspace_bytes;
  /// Runs the op on inputs that depend on nothing else; returns its outputs.
  std::function<std::vector<Tensor>(Device& device)> run;
};

/// Ops over activations of `dtype` and gradients of weights of `gradient`.
std::vector<OpCase> EveryOpIn(DType dtype, DType gradient);
/// Those of them that belong to attention.
std::vector<OpCase> AttentionOpsIn(DType dtype, DType gradient);
/// Those of them that belong to experts, and a router's, which are of one type.
std::vector<OpCase> ExpertOpsIn(DType dtype, DType gradient);
std::vector<OpCase> RouterOps();
/// Those of them that write fp8 copies of what they make.
std::vector<OpCase> FusedFp8OpsIn(DType dtype, DType gradient);
/// Those of serving.
std::vector<OpCase> ServingOpsIn(DType dtype);
/// All of these in fp32, in bf16 with bf16 gradients, in fp16; and what has types of its own.
std::vector<OpCase> EveryOp();

}  // namespace trimtab
