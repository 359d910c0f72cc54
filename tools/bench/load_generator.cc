#include "tools/bench/load_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "engine/data/mix.h"

namespace trimtab {
namespace {

using Steady = std::chrono::steady_clock;

/// How soon a stop is noticed while the next request is not due.
constexpr auto kPoll = std::chrono::milliseconds(50);

/// Random ids, the same for the same seed and request whoever sends it; the first ones are of the
/// seed alone.
std::vector<int32_t> PromptOf(const LoadOptions& options, size_t index,
                              const LoadRequest& request) {
  std::vector<int32_t> prompt(static_cast<size_t>(request.prompt_tokens));
  const uint64_t seed = MixBits(options.seed);
  const uint64_t own = MixBits(seed + index);
  const auto shared = static_cast<size_t>(request.shared_tokens);
  for (size_t i = 0; i < prompt.size(); ++i) {
    const uint64_t bits = MixBits((i < shared ? ~seed : own) + i);
    prompt[i] = static_cast<int32_t>(bits % static_cast<uint64_t>(options.vocab_size));
  }
  return prompt;
}

/// Waits until a request is due; false when there is to be no more.
bool AwaitTurn(Steady::time_point due, const LoadOptions& options) {
  while (!options.stop()) {
    const auto now = Steady::now();
    if (now >= due) return true;
    std::this_thread::sleep_until(std::min(due, now + kPoll));
  }
  return false;
}

}  // namespace

std::vector<LoadOutcome> PutLoad(LoadTarget& target, const std::vector<LoadRequest>& requests,
                                 const LoadOptions& options) {
  std::vector<LoadOutcome> outcomes(requests.size());
  const auto run = [&](size_t i) {
    LoadOutcome& outcome = outcomes[i];
    outcome = target.Run(requests[i], PromptOf(options, i, requests[i]));
    if (outcome.failure.empty() && outcome.tokens < requests[i].output_tokens) {
      outcome.failure =
          fmt::format("{} of {} tokens came after a prompt of {}; expected all", outcome.tokens,
                      requests[i].output_tokens, requests[i].prompt_tokens);
    }
  };
  std::vector<std::thread> threads;
  std::atomic<size_t> next = 0;
  size_t sent = 0;
  if (options.concurrency > 0) {
    for (int64_t client = 0; client < options.concurrency; ++client) {
      threads.emplace_back([&] {
        while (!options.stop()) {
          const size_t i = next++;
          if (i >= requests.size()) return;
          run(i);
        }
      });
    }
  } else {
    const Steady::time_point start = Steady::now();
    for (; sent < requests.size(); ++sent) {
      const auto after = std::chrono::duration<double>(requests[sent].at_s);
      if (!AwaitTurn(start + std::chrono::duration_cast<Steady::duration>(after), options)) break;
      threads.emplace_back(run, sent);
    }
  }
  for (std::thread& thread : threads) thread.join();
  // Clients take requests in order, and so the ones that were not sent are the last.
  std::erase_if(outcomes, [](const LoadOutcome& each) { return each.sent_s < 0; });
  return outcomes;
}

}  // namespace trimtab
