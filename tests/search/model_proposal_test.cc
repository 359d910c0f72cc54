// Shapes, batches and learning rates for a budget: near to what was published, legal in layouts
// that people use, at any size.
#include "search/model_proposal.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "engine/config/rules/rules.h"

namespace trimtab {
namespace {

// Chinchilla: 5.76e23 operations are spent best on 67 to 70 billion parameters and 1.4 to 1.5
// trillion tokens (arXiv:2203.15556, table 3 and section 4).
TEST(ModelProposal, SpendsComputeAsChinchilla) {
  EXPECT_NEAR(ComputeOptimalParameters(5.76e23), 69.3e9, 0.1e9);
  const ModelProposal proposal = ProposeModel({.flops = 5.76e23});
  EXPECT_NEAR(static_cast<double>(proposal.model.parameter_count()), 69.3e9, 3e9);
  EXPECT_NEAR(proposal.tokens, 1.39e12, 0.02e12);
}

TEST(ModelProposal, TrainsGpt3SizesAsGpt3) {
  const ModelProposal large = ProposeModel({.parameters = 175e9, .tokens = 300e9});
  EXPECT_NEAR(large.optimizer.learning_rate, 0.6e-4, 0.02e-4);
  EXPECT_NEAR(static_cast<double>(large.global_batch) * 4096, 3.2e6, 0.15e6);
  EXPECT_NEAR(static_cast<double>(large.optimizer.warmup_steps * large.global_batch) * 4096, 375e6,
              5e6);
  const ModelProposal small = ProposeModel({.parameters = 125e6, .sequence_length = 2048});
  EXPECT_NEAR(small.optimizer.learning_rate, 6e-4, 0.3e-4);
  EXPECT_NEAR(static_cast<double>(small.global_batch) * 2048, 0.5e6, 0.05e6);
}

TEST(ModelProposal, LooksLikeModelsOfItsSize) {
  const ModelConfig seven = ProposeModel({.parameters = 7e9}).model;
  EXPECT_EQ(seven.hidden_size, 4096);
  EXPECT_NEAR(static_cast<double>(seven.num_layers), 32, 4);
  const ModelConfig seventy = ProposeModel({.parameters = 70e9}).model;
  EXPECT_NEAR(static_cast<double>(seventy.hidden_size), 8192, 1024);
  EXPECT_NEAR(static_cast<double>(seventy.num_layers), 80, 16);
}

TEST(ModelProposal, ComesNearItsSizeAndDividesAmongRanks) {
  for (double parameters = 2e7; parameters < 2e12; parameters *= 1.3) {
    SCOPED_TRACE(parameters);
    const ModelProposal proposal = ProposeModel({.parameters = parameters, .vocab_size = 32000});
    const ModelConfig& model = proposal.model;
    EXPECT_LT(std::abs(std::log(static_cast<double>(model.parameter_count()) / parameters)), 0.1);
    EXPECT_EQ(model.num_heads * model.head_size(), model.hidden_size);
    EXPECT_GE(proposal.global_batch, 8);
    EXPECT_GE(proposal.steps, 1);
    RunConfig run;
    run.model = model;
    run.sequence_length = model.max_sequence_length;
    run.global_batch = proposal.global_batch;
    run.layout.pp = 2;
    run.layout.tp = model.hidden_size >= 4096 ? 8 : 2;
    EXPECT_EQ(FirstBrokenRule(run), nullptr);
  }
}

TEST(ModelProposal, WhatMakesNoSenseIsRefused) {
  EXPECT_THROW(ProposeModel({}), UsageError);
  EXPECT_THROW(ProposeModel({.parameters = 1e6}), UsageError);
  EXPECT_THROW(ProposeModel({.parameters = 1e13}), UsageError);
  EXPECT_THROW(ProposeModel({.parameters = 1e9, .flops = 1e20}), UsageError);
  EXPECT_THROW(ProposeModel({.flops = 1e20, .tokens = 1e18}), UsageError);
}

}  // namespace
}  // namespace trimtab
