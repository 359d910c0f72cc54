// LoadTarget: what a load is put on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/infer/engine.h"
#include "engine/infer/load_report.h"
#include "engine/infer/workload.h"

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

struct HttpTargetOptions {
  std::string url{};    // "http://127.0.0.1:8000"
  std::string model{};  // as the server names it; empty: the first that it lists
  std::string api_key{};
  double timeout_s = 600;
};

/// A server that speaks OpenAI's API: streamed completions of prompts given as token ids. Throws
/// EnvironmentError when nobody answers there, InputError for an answer that is none.
std::unique_ptr<LoadTarget> MakeHttpTarget(HttpTargetOptions options);

/// An engine in this process. It must outlive the target.
std::unique_ptr<LoadTarget> MakeEngineTarget(Engine& engine);

}  // namespace trimtab
