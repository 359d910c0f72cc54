#include "engine/infer/api/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "engine/infer/api/engine.h"

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
  const bool embeds = request.pooling != Pooling::kNone;
  if (embeds && request.prompt_log_probabilities) {
    return "an embedding has no log probabilities of its prompt; expected one of both";
  }
  const int64_t least = embeds || request.prompt_log_probabilities ? 0 : 1;
  if (request.max_tokens < least) {
    return fmt::format("{} new tokens; expected at least {}", request.max_tokens, least);
  }
  if (prompt >= limits.sequence_length) {
    return fmt::format("the prompt has {} tokens; expected fewer than {}", prompt,
                       limits.sequence_length);
  }
  const auto fault = [vocab_size](std::span<const int32_t> tokens, const char* where) {
    for (const int32_t token : tokens) {
      if (token >= 0 && token < vocab_size) continue;
      return fmt::format("token {} in {}; expected 0 to {}", token, where, vocab_size - 1);
    }
    return std::string();
  };
  if (auto why = fault(request.prompt, "the prompt"); !why.empty()) return why;
  if (auto why = fault(request.allowed_tokens, "the allowed tokens"); !why.empty()) return why;
  for (const auto& [token, bias] : request.logit_bias) {
    if (auto why = fault({&token, 1}, "the logit bias"); !why.empty()) return why;
  }
  for (const std::vector<int32_t>& banned : request.banned_sequences) {
    if (banned.empty()) return "a banned sequence is empty; expected at least one token";
    if (auto why = fault(banned, "a banned sequence"); !why.empty()) return why;
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
  peak_mem_bytes = std::max(peak_mem_bytes, other.peak_mem_bytes);
  return *this;
}

}  // namespace trimtab
