#include "profiler/serving/load_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <system_error>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/mix.h"

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

/// A thread that sends one request. It is joined when this goes away.
struct Sender {
  std::atomic<bool> done = false;
  std::jthread thread{};
};

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
  std::atomic<size_t> next = 0;
  std::list<Sender> senders;
  const auto start_sender = [&](const std::function<void()>& send) {
    // Threads that have ended keep their memory until they are joined.
    std::erase_if(senders, [](const Sender& each) { return each.done.load(); });
    Sender& sender = senders.emplace_back();
    try {
      sender.thread = std::jthread([&sender, send] {
        send();
        sender.done = true;
      });
    } catch (const std::system_error& error) {
      throw EnvironmentError(fmt::format("no thread for another request beside {} ({})",
                                         senders.size() - 1, error.what()));
    }
  };
  if (options.concurrency > 0) {
    for (int64_t client = 0; client < options.concurrency; ++client) {
      start_sender([&] {
        while (!options.stop()) {
          const size_t i = next++;
          if (i >= requests.size()) return;
          run(i);
        }
      });
    }
  } else {
    const Steady::time_point start = Steady::now();
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto after = std::chrono::duration<double>(requests[i].at_s);
      if (!AwaitTurn(start + std::chrono::duration_cast<Steady::duration>(after), options)) break;
      start_sender([&run, i] { run(i); });
    }
  }
  senders.clear();
  // Clients take requests in order, and so the ones that were not sent are the last.
  std::erase_if(outcomes, [](const LoadOutcome& each) { return each.sent_s < 0; });
  return outcomes;
}

}  // namespace trimtab
