// An engine without a model, for tests of what stands around one.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "engine/infer/api/engine.h"

namespace trimtab {

/// Every sequence repeats its prompt, token by token, all of them in every step. It fails at token
/// 255. An embedding is the prompt's length and its first token. Answers of seeds 1
/// and 3 are less likely.
class FakeEngine : public Engine {
 public:
  EngineLimits limits_now = {.sequences = 16, .waiting = 16, .sequence_length = 512};
  std::chrono::milliseconds step_time{0};
  std::atomic<bool> broken = false;  // the next step throws

  std::variant<RequestId, Refusal> AddRequest(GenerationRequest request) override {
    if (std::ssize(request.prompt) >= limits_now.sequence_length) {
      return Refusal{"the prompt is longer than a sequence may be"};
    }
    if (std::ssize(sequences_) >= limits_now.sequences + limits_now.waiting) {
      return Refusal{"too many requests wait", /*busy=*/true};
    }
    sequences_[++last_id_] = {std::move(request), 0};
    return last_id_;
  }

  std::vector<RequestUpdate> Step() override {
    if (broken) throw std::runtime_error("a wheel came off");
    std::this_thread::sleep_for(step_time);
    std::vector<RequestUpdate> updates;
    for (auto& [id, sequence] : sequences_) {
      RequestUpdate& update = updates.emplace_back();
      update.id = id;
      const GenerationRequest& request = sequence.request;
      if (request.pooling != Pooling::kNone) {
        update.embedding = {static_cast<float>(request.prompt.size()),
                            static_cast<float>(request.prompt[0])};
        update.finish = FinishReason::kLength;
        continue;
      }
      if (request.prompt_log_probabilities && sequence.done == 0) {
        update.prompt = PromptOf(request);
        if (request.max_tokens == 0) {
          update.finish = FinishReason::kLength;
          continue;
        }
      }
      const int32_t token = request.prompt[sequence.done % request.prompt.size()];
      const auto& stops = request.stop_tokens;
      if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
        update.finish = FinishReason::kStop;
        continue;
      }
      if (token == 255) {
        update.finish = FinishReason::kError;
        update.failure = "a tooth came off";
        continue;
      }
      ++sequence.done;
      SampledToken& sampled = update.tokens.emplace_back();
      sampled.id = token;
      sampled.log_probability =
          request.sampling.seed == 1 || request.sampling.seed == 3 ? -5.0f : -0.5f;
      for (int64_t i = 0; i < request.sampling.log_probabilities; ++i) {
        sampled.likeliest.emplace_back(token + static_cast<int32_t>(i), -0.5f);
      }
      const int64_t length = std::ssize(request.prompt) + static_cast<int64_t>(sequence.done);
      if (static_cast<int64_t>(sequence.done) == request.max_tokens ||
          length == limits_now.sequence_length) {
        update.finish = FinishReason::kLength;
      }
    }
    for (const RequestUpdate& update : updates) {
      metrics_.generated_tokens += std::ssize(update.tokens);
      if (update.finish == FinishReason::kNone) continue;
      ++metrics_.finished_requests;
      sequences_.erase(update.id);
    }
    ++metrics_.steps;
    return updates;
  }

  bool Abort(RequestId id) override {
    const bool there = sequences_.erase(id) > 0;
    if (there) ++metrics_.aborted_requests;
    return there;
  }

  bool HasWork() const override { return !sequences_.empty(); }
  EngineMetrics metrics() const override {
    EngineMetrics now = metrics_;
    now.running = std::ssize(sequences_);
    return now;
  }
  const EngineLimits& limits() const override { return limits_now; }
  int64_t vocab_size() const override { return 257; }

 private:
  static std::vector<SampledToken> PromptOf(const GenerationRequest& request) {
    std::vector<SampledToken> prompt;
    for (const int32_t token : request.prompt) {
      SampledToken& each = prompt.emplace_back();
      each.id = token;
      each.log_probability = prompt.size() == 1 ? std::numeric_limits<float>::quiet_NaN() : -0.25f;
      for (int64_t i = 0; prompt.size() > 1 && i < *request.prompt_log_probabilities; ++i) {
        each.likeliest.emplace_back(token + static_cast<int32_t>(i), -0.25f);
      }
    }
    return prompt;
  }

  struct Sequence {
    GenerationRequest request;
    size_t done = 0;
  };
  std::map<RequestId, Sequence> sequences_;
  RequestId last_id_ = 0;
  EngineMetrics metrics_;
};

}  // namespace trimtab
