#include "engine/infer/request.h"

#include <fmt/format.h>

#include <iterator>

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
    case FinishReason::kError:
      return "error";
  }
  return "";
}

std::string FaultOf(const GenerationRequest& request, const EngineLimits& limits,
                    int64_t vocab_size) {
  const auto prompt = std::ssize(request.prompt);
  if (prompt == 0) return "the prompt is empty; expected at least one token";
  if (request.max_tokens < 1) {
    return fmt::format("{} new tokens; expected at least 1", request.max_tokens);
  }
  if (prompt >= limits.sequence_length) {
    return fmt::format("the prompt has {} tokens; expected fewer than {}", prompt,
                       limits.sequence_length);
  }
  for (const int32_t token : request.prompt) {
    if (token >= 0 && token < vocab_size) continue;
    return fmt::format("token {} in the prompt; expected 0 to {}", token, vocab_size - 1);
  }
  return "";
}

EngineMetrics& EngineMetrics::operator+=(const EngineMetrics& other) {
  for (const auto counter :
       {&EngineMetrics::steps, &EngineMetrics::prompt_tokens, &EngineMetrics::cached_tokens,
        &EngineMetrics::generated_tokens, &EngineMetrics::finished_requests,
        &EngineMetrics::aborted_requests, &EngineMetrics::refused_requests,
        &EngineMetrics::preemptions, &EngineMetrics::moved_requests,
        &EngineMetrics::proposed_tokens, &EngineMetrics::checked_tokens,
        &EngineMetrics::accepted_tokens, &EngineMetrics::running, &EngineMetrics::waiting,
        &EngineMetrics::used_blocks, &EngineMetrics::total_blocks}) {
    this->*counter += other.*counter;
  }
  return *this;
}

}  // namespace trimtab
