// A server over HTTP as the target of a load.
#pragma once

#include <memory>
#include <string>

#include "profiler/serving/load_target.h"

namespace trimtab {

struct HttpTargetOptions {
  std::string url{};    // "http://127.0.0.1:8000"
  std::string model{};  // as the server names it; empty: the first that it lists
  std::string api_key{};
  double timeout_s = 600;
};

/// Targets a server that speaks OpenAI's API: streamed completions of prompts given as token ids.
/// Throws EnvironmentError when no server answers there, InputError for an answer that is none.
std::unique_ptr<LoadTarget> MakeHttpTarget(HttpTargetOptions options);

}  // namespace trimtab
