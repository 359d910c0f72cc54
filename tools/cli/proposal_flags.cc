#include "tools/cli/proposal_flags.h"

#include "engine/base/count_text.h"
#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr double kSecondsOfDay = 86400;

/// Operations that all GPUs of `cluster` do in `days`, at `mfu` of their peak in 16 bits.
double FlopsOf(const Cluster& cluster, double days, double mfu) {
  const double peak = PeakOf16Bits(cluster.profile);
  if (cluster.device != DeviceKind::kCuda || peak <= 0) {
    throw UsageError(fmt::format(
        "--days: nothing says how much '{}' computes in a day; expected a cluster of GPUs, or "
        "--params",
        cluster.name));
  }
  return days * kSecondsOfDay * static_cast<double>(cluster.max_ranks) * peak * mfu;
}

}  // namespace

void ProposalFlags::Declare(FlagSet& flags) {
  flags.Group("Problem");
  flags.Count("--params", parameters,
              {"propose a model of about this many parameters, e.g. 7B",
               "Also proposes batch, steps and learning rate. Instead of --model."});
  flags.Positive("--days", days, 1e5,
                 {"propose a model that the GPUs train in this many days", "Instead of --model."});
  flags.Number("--mfu", mfu, 0.01, 1, "share of the GPUs' 16-bit peak that --days assumes");
  flags.Integer("--vocab", vocab_size, 2, 10'000'000, "vocabulary size of a proposed model");
}

ModelProposal ProposalFlags::Propose(const Cluster& cluster, double tokens,
                                     int64_t sequence_length) const {
  ModelRequest request;
  if (parameters > 0 && days > 0) {
    throw UsageError("--params and --days: expected only one of the two");
  }
  request.parameters = parameters;
  if (days > 0) request.flops = FlopsOf(cluster, days, mfu);
  request.tokens = tokens;
  request.vocab_size = vocab_size;
  if (sequence_length > 0) request.sequence_length = sequence_length;
  return ProposeModel(request);
}

std::vector<std::string> ProposalLines(const ModelProposal& proposal) {
  const ModelConfig& model = proposal.model;
  const OptimizerConfig& optimizer = proposal.optimizer;
  std::vector<std::string> lines = {
      fmt::format("proposed: {} parameters: {} layers of {}, {} heads ({} of keys and values), ffn "
                  "{}, vocabulary {}",
                  Thousands(model.parameter_count()), model.num_layers, model.hidden_size,
                  model.num_heads, model.num_kv_heads, model.ffn_hidden_size, model.vocab_size),
      fmt::format("to train: {} tokens in {} steps of {} sequences of {}; learning rate {:.3g} "
                  "falling to {:.3g} after {} steps of warm-up",
                  ShortCount(proposal.tokens), Thousands(proposal.steps), proposal.global_batch,
                  model.max_sequence_length, optimizer.learning_rate, optimizer.min_learning_rate,
                  optimizer.warmup_steps)};
  for (const ModelProposal::Reason& each : proposal.reasons) {
    lines.push_back(fmt::format("  {}: {}", each.what, each.why));
  }
  return lines;
}

}  // namespace trimtab
