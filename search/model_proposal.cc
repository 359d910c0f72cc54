#include "search/model_proposal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/base/units.h"

namespace trimtab {
namespace {

constexpr double kTokensPerParameter = 20;
constexpr double kFlopsPerParameterAndToken = 6;
constexpr double kLeastParameters = 2e7;
constexpr double kMostParameters = 2e12;

/// How a model of GPT-3's family was trained (Brown et al., arXiv:2005.14165, table 2.1).
struct Published {
  double parameters;
  double aspect;  // hidden size / layers
  double learning_rate;
  double batch_tokens;
};
constexpr std::array<Published, 8> kGpt3 = {{
    {125e6, 768 / 12.0, 6.0e-4, 0.5e6},
    {350e6, 1024 / 24.0, 3.0e-4, 0.5e6},
    {760e6, 1536 / 24.0, 2.5e-4, 0.5e6},
    {1.3e9, 2048 / 24.0, 2.0e-4, 1e6},
    {2.7e9, 2560 / 32.0, 1.6e-4, 1e6},
    {6.7e9, 4096 / 32.0, 1.2e-4, 2e6},
    {13e9, 5140 / 40.0, 1.0e-4, 2e6},
    {175e9, 12288 / 96.0, 0.6e-4, 3.2e6},
}};
constexpr double kWarmupTokens = 375e6;  // the same paper, appendix B
constexpr double kMostOfRunWarmup = 0.1;

/// Between the two published sizes around it, in logarithms; beyond them as at the end.
double Between(double parameters, double Published::*figure) {
  if (parameters <= kGpt3.front().parameters) return kGpt3.front().*figure;
  for (size_t i = 1; i < kGpt3.size(); ++i) {
    if (parameters > kGpt3[i].parameters) continue;
    const double share = std::log(parameters / kGpt3[i - 1].parameters) /
                         std::log(kGpt3[i].parameters / kGpt3[i - 1].parameters);
    return kGpt3[i - 1].*figure * std::pow(kGpt3[i].*figure / kGpt3[i - 1].*figure, share);
  }
  return kGpt3.back().*figure;
}

int64_t RoundTo(double value, int64_t multiple) {
  const auto times = std::llround(value / static_cast<double>(multiple));
  return std::max<int64_t>(1, times) * multiple;
}

/// Small models spend too much of themselves on a second table.
constexpr double kTiedBelow = 2e9;
constexpr int64_t kGroups = 8;

ModelConfig Shaped(int64_t hidden, int64_t layers, int64_t head_size, const ModelRequest& request) {
  ModelConfig model;
  model.hidden_size = hidden;
  model.num_layers = layers;
  model.num_heads = hidden / head_size;
  model.num_kv_heads = model.num_heads % kGroups == 0 ? kGroups : model.num_heads;
  model.ffn_hidden_size = CeilDiv(8 * hidden, 3 * 256) * 256;
  model.vocab_size = request.vocab_size;
  model.max_sequence_length = request.sequence_length;
  model.norm = NormKind::kRmsNorm;
  model.activation = ActivationKind::kSwiGlu;
  model.position = PositionKind::kRope;
  model.bias = false;
  model.tied_embeddings = request.parameters < kTiedBelow;
  return model;
}

/// Of the shapes whose sizes divide well (heads by 2, 4 and 8 as they grow, so that as many
/// tensor-parallel ranks share them; layers by 4), the one nearest to the parameters asked for;
/// among those as near, the one nearest to the published aspect.
ModelConfig ShapeOf(const ModelRequest& request) {
  const bool small = request.parameters < 1e9;
  const int64_t head_size = small ? 64 : 128;
  const double aspect = Between(request.parameters, &Published::aspect);
  constexpr double kFreedom = 1.5;       // of the aspect
  constexpr double kAspectCounts = 0.1;  // of an error in parameters
  ModelConfig best;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t hidden = 2 * head_size; hidden <= 65536;
       hidden += head_size * (hidden < 2048   ? 2
                              : hidden < 4096 ? 4
                                              : 8)) {
    for (int64_t layers = 3; layers <= 256; layers += layers < 8 ? 1 : layers < 16 ? 2 : 4) {
      const double ratio = static_cast<double>(hidden) / static_cast<double>(layers) / aspect;
      if (ratio > kFreedom || ratio < 1 / kFreedom) continue;
      const ModelConfig model = Shaped(hidden, layers, head_size, request);
      const auto count = static_cast<double>(model.parameter_count());
      const double score = std::abs(std::log(count / request.parameters)) +
                           kAspectCounts * std::abs(std::log(ratio));
      if (score >= least) continue;
      least = score;
      best = model;
    }
  }
  TRIMTAB_ASSERT(best.num_layers > 0, "no shape has {} parameters", request.parameters);
  best.name = fmt::format("proposed-{:.3g}{}",
                          static_cast<double>(best.parameter_count()) / (small ? 1e6 : 1e9),
                          small ? "m" : "b");
  return best;
}

ModelRequest Completed(ModelRequest request) {
  if (request.flops > 0 && request.parameters > 0) {
    throw UsageError("a number of parameters and a compute budget; expected one of the two");
  }
  if (request.flops > 0) {
    request.parameters = request.tokens > 0
                             ? request.flops / (kFlopsPerParameterAndToken * request.tokens)
                             : ComputeOptimalParameters(request.flops);
  }
  if (!(request.parameters >= kLeastParameters && request.parameters <= kMostParameters)) {
    throw UsageError(
        fmt::format("a model of {:.3g} parameters: expected 20M to 2T", request.parameters));
  }
  if (request.tokens == 0) request.tokens = kTokensPerParameter * request.parameters;
  return request;
}

void SetBatches(const ModelRequest& request, ModelProposal& proposal) {
  const auto parameters = static_cast<double>(proposal.model.parameter_count());
  const auto length = static_cast<double>(request.sequence_length);
  const double sequences = Between(parameters, &Published::batch_tokens) / length;
  proposal.global_batch = sequences < 64 ? RoundTo(sequences, 8) : RoundTo(sequences, 64);
  const double batch_tokens = static_cast<double>(proposal.global_batch) * length;
  proposal.steps = std::max<int64_t>(1, std::llround(request.tokens / batch_tokens));
  OptimizerConfig& optimizer = proposal.optimizer;
  const double exact = Between(parameters, &Published::learning_rate);
  optimizer.ScaleTo(std::round(exact * 1e6) / 1e6);
  const double warmup = std::min(kWarmupTokens, kMostOfRunWarmup * request.tokens);
  optimizer.warmup_steps = std::max<int64_t>(1, std::llround(warmup / batch_tokens));
}

}  // namespace

double ComputeOptimalParameters(double flops) {
  return std::sqrt(flops / (kFlopsPerParameterAndToken * kTokensPerParameter));
}

ModelProposal ProposeModel(const ModelRequest& asked) {
  const ModelRequest request = Completed(asked);
  ModelProposal proposal;
  proposal.model = ShapeOf(request);
  const auto parameters = static_cast<double>(proposal.model.parameter_count());
  proposal.tokens = request.tokens;
  proposal.flops = kFlopsPerParameterAndToken * parameters * request.tokens;
  SetBatches(request, proposal);
  const double per_parameter = request.tokens / parameters;
  proposal.reasons = {
      {"tokens", fmt::format("{:.3g} a parameter; compute is spent best at about 20 (Hoffmann et "
                             "al., arXiv:2203.15556, table 3), and more make a model that is "
                             "cheaper to serve",
                             per_parameter)},
      {"layers and hidden size",
       "between GPT-3's, which grow from 64 to 128 wide a layer (arXiv:2005.14165, table 2.1); "
       "quality hardly depends on it (Kaplan et al., arXiv:2001.08361, figure 5), so sizes are "
       "ones that divide well among ranks and tiles"},
      {"ffn",
       "8/3 of the hidden size, for a gated MLP of the same size as a plain one of 4 "
       "(Shazeer, arXiv:2002.05202), rounded up to 256 (Llama)"},
      {"key/value heads",
       "8, as good as one for each head and faster to serve (Ainslie et al., "
       "arXiv:2305.13245)"},
      {"learning rate, batch",
       "between those of GPT-3's sizes (arXiv:2005.14165, table 2.1), "
       "falling to a tenth"},
      {"warm-up", "375 million tokens (the same, appendix B), a tenth of the run at most"},
  };
  return proposal;
}

}  // namespace trimtab
