// LoadTarget: what a load is put on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/infer/api/engine.h"
#include "engine/infer/load/load_report.h"
#include "engine/infer/load/workload.h"

namespace trimtab {

/// Safe to use from several threads.
class LoadTarget {
 public:
  virtual ~LoadTarget() = default;
  /// Sends a request of the given lengths and waits for its end.
  virtual LoadOutcome Run(const LoadRequest& request, const std::vector<int32_t>& prompt) = 0;
  /// Why it will never answer again, in a line; empty where it may.
  virtual std::string failure() const { return ""; }
};

/// An engine in this process. It must outlive the target.
std::unique_ptr<LoadTarget> MakeEngineTarget(Engine& engine);

}  // namespace trimtab
