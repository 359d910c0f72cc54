// The flags that ask for a model to be proposed, instead of naming one.
#pragma once

#include <string>
#include <vector>

#include "cost_model/hardware/cluster.h"
#include "search/model_proposal.h"
#include "tools/cli/flags.h"

namespace trimtab {

struct ProposalFlags {
  double parameters = 0;
  double days = 0;
  double mfu = 0.4;
  int64_t vocab_size = ModelRequest().vocab_size;

  void Declare(FlagSet& flags);
  bool given() const { return parameters > 0 || days > 0; }
  /// The model to train on `tokens` tokens (0 = not said) of sequences of `sequence_length` (0 =
  /// not said) on `cluster`. Throws UsageError where `cluster` has no known speed that --days could
  /// be counted in.
  ModelProposal Propose(const Cluster& cluster, double tokens, int64_t sequence_length) const;
};

/// The proposal for people, line by line: its figures, then its reasons.
std::vector<std::string> ProposalLines(const ModelProposal& proposal);

}  // namespace trimtab
