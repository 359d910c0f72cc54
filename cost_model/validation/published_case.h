// A published run as a run of our engine: the same model, layout and machine, and the software
// stack that it was measured with. Or why it cannot be one.
#pragma once

#include <string>
#include <vector>

#include "cost_model/hardware/cluster.h"
#include "cost_model/validation/published_run.h"
#include "engine/config/run/run_config.h"

namespace trimtab {

struct PublishedCase {
  RunConfig run;
  Cluster cluster;     // with the stack that is assumed, as shipped
  double release = 0;  // of the stack's software: InYear
  /// What is not the same as in the published run, in words.
  std::vector<std::string> assumptions;
  /// Why it cannot be predicted; empty if it can, and then everything above is set.
  std::string refusal;
};

/// Legal by the engine's rules unless it is refused.
PublishedCase CaseOf(const PublishedRun& published);

}  // namespace trimtab
