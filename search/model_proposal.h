// Model proposal: the shape of a model for a budget, and how to begin training it.
//
// Rules of published trainings, each with its source. What they say is a start: no model of any of
// these shapes was trained by this program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/run/run_config.h"

namespace trimtab {

/// What a model is to be made for: either `parameters`, or `flops`, or both `parameters` and
/// `tokens`, or both `flops` and `tokens`.
struct ModelRequest {
  double parameters = 0;  // aimed at
  double flops = 0;       // of the whole training
  double tokens = 0;      // to train on
  int64_t vocab_size = 128256;
  int64_t sequence_length = 4096;
};

struct ModelProposal {
  ModelConfig model;  // Llama's kind
  double tokens = 0;
  double flops = 0;  // 6 x parameters x tokens
  int64_t global_batch = 0;
  int64_t steps = 0;
  OptimizerConfig optimizer;

  struct Reason {
    std::string what;
    std::string why;  // with its source
  };
  std::vector<Reason> reasons;
};

/// Parameters and tokens that spend `flops` best: 20 tokens a parameter (Hoffmann et al.,
/// arXiv:2203.15556, table 3), 6 operations for each of both.
double ComputeOptimalParameters(double flops);

/// Throws UsageError for a request that is none of the above, or of a model that is smaller than 20
/// million or larger than 2 trillion parameters.
ModelProposal ProposeModel(const ModelRequest& request);

}  // namespace trimtab
