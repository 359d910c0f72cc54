#include <chrono>
#include <variant>

#include "engine/infer/api/engine_loop.h"
#include "engine/infer/scheduler/clock.h"
#include "profiler/serving/load_target.h"

namespace trimtab {
namespace {

double Now() { return SteadyClock().Now(); }

class EngineTarget : public LoadTarget {
 public:
  explicit EngineTarget(Engine& engine) : loop_(engine) {}

  LoadOutcome Run(const LoadRequest& request, const std::vector<int32_t>& prompt) override {
    LoadOutcome outcome;
    outcome.sent_s = Now();
    outcome.prompt_tokens = std::ssize(prompt);
    GenerationRequest generation;
    generation.prompt = prompt;
    generation.max_tokens = request.output_tokens;
    generation.sampling.seed = request.seed;
    auto taken = loop_.Submit({std::move(generation)});
    if (const auto* refusal = std::get_if<Refusal>(&taken)) {
      outcome.failure = refusal->reason;
      return outcome;
    }
    Ticket& ticket = *std::get<std::unique_ptr<Ticket>>(taken);
    for (bool ended = false; !ended;) {
      for (const Ticket::News& news :
           ticket.Wait(std::chrono::steady_clock::now() + std::chrono::hours(1))) {
        outcome.tokens += std::ssize(news.tokens);
        if (!news.tokens.empty()) outcome.arrivals_s.push_back(Now());
        outcome.failure = news.failure;
        ended = news.ended();
      }
    }
    return outcome;
  }

  std::string failure() const override { return loop_.failure(); }

 private:
  EngineLoop loop_;
};

}  // namespace

std::unique_ptr<LoadTarget> MakeEngineTarget(Engine& engine) {
  return std::make_unique<EngineTarget>(engine);
}

}  // namespace trimtab
