#include "engine/infer/request.h"

#include "engine/infer/engine.h"

namespace trimtab {

std::string_view Name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
  }
  return "";
}

EngineMetrics& EngineMetrics::operator+=(const EngineMetrics& other) {
  for (const auto counter :
       {&EngineMetrics::steps, &EngineMetrics::prompt_tokens, &EngineMetrics::cached_tokens,
        &EngineMetrics::generated_tokens, &EngineMetrics::finished_requests,
        &EngineMetrics::aborted_requests, &EngineMetrics::refused_requests,
        &EngineMetrics::preemptions, &EngineMetrics::proposed_tokens,
        &EngineMetrics::accepted_tokens, &EngineMetrics::running, &EngineMetrics::waiting,
        &EngineMetrics::used_blocks, &EngineMetrics::total_blocks}) {
    this->*counter += other.*counter;
  }
  return *this;
}

}  // namespace trimtab
