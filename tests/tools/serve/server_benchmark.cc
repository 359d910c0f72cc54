// What the server costs: tokens per second of 16 streams over HTTP, against the engine's own steps,
// in alternating rounds of one run. The client's work is on the same cores and counts too.
//
//   server_benchmark [MODEL [ROUNDS]]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/config/model_presets.h"
#include "engine/data/hugging_face_tokenizer.h"
#include "engine/data/mix.h"
#include "engine/infer/load_report.h"
#include "engine/infer/make_engine.h"
#include "engine/infer/random_weights.h"
#include "tools/bench/load_generator.h"
#include "tools/serve/http_server.h"

namespace trimtab {
namespace {

constexpr int64_t kStreams = 16;
constexpr int64_t kPromptTokens = 16;
constexpr int64_t kOutputTokens = 64;

/// A word for every id, so that every token is some text.
std::unique_ptr<Tokenizer> WordsFor(int64_t count) {
  nlohmann::json json = nlohmann::json::parse(MakeByteTokenizer()->files()[0].content);
  for (int64_t id = 257; id < count; ++id) {
    json["model"]["vocab"][fmt::format("\u0120word{}", id)] = id;
  }
  return MakeHuggingFaceTokenizer(json.dump(), "words", {});
}

std::vector<int32_t> PromptOf(int64_t stream) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < kPromptTokens; ++i) {
    prompt.push_back(static_cast<int32_t>(MixBits(static_cast<uint64_t>(1000 * stream + i)) % 256));
  }
  return prompt;
}

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The streams by the engine alone, stepped here.
double Alone(Engine& engine) {
  const Clock::time_point start = Clock::now();
  for (int64_t stream = 0; stream < kStreams; ++stream) {
    GenerationRequest request;
    request.prompt = PromptOf(stream);
    request.max_tokens = kOutputTokens;
    engine.AddRequest(std::move(request));
  }
  while (engine.HasWork()) engine.Step();
  return SecondsSince(start);
}

/// The same through a server and its clients.
double Served(LoadTarget& target) {
  const Clock::time_point start = Clock::now();
  std::vector<std::thread> clients;
  for (int64_t stream = 0; stream < kStreams; ++stream) {
    clients.emplace_back([&target, stream] {
      const LoadOutcome outcome = target.Run({0, kPromptTokens, kOutputTokens}, PromptOf(stream));
      TRIMTAB_ASSERT(outcome.failure.empty() && outcome.tokens == kOutputTokens, "{}, {} tokens",
                     outcome.failure, outcome.tokens);
    });
  }
  for (std::thread& client : clients) client.join();
  return SecondsSince(start);
}

void Run(const std::string& name, int rounds) {
  const auto presets = ModelPresets();
  const auto preset = std::find_if(presets.begin(), presets.end(),
                                   [&](const ModelConfig& each) { return each.name == name; });
  if (preset == presets.end()) throw UsageError(fmt::format("no model '{}'", name));
  const RandomWeights weights(*preset);
  ServingConfig config;
  config.model = *preset;
  config.prefix_cache = false;
  config.limits.sequences = kStreams;
  config.limits.sequence_length = kPromptTokens + kOutputTokens;
  const std::unique_ptr<Engine> engine = MakeEngine(config, weights);
  const std::unique_ptr<Tokenizer> tokenizer = WordsFor(preset->vocab_size);
  std::vector<double> ratios;
  std::vector<double> alone;
  Alone(*engine);
  for (int round = 0; round < rounds; ++round) {
    const double before = Alone(*engine);
    double served = 0;
    {
      HttpServer server(*engine,
                        {.name = name,
                         .tokenizer = tokenizer.get(),
                         .limits = engine->limits(),
                         .vocab_size = engine->vocab_size()},
                        {.port = 0});
      const auto target =
          MakeHttpTarget({.url = fmt::format("http://127.0.0.1:{}", server.port()), .model = name});
      served = Served(*target);
    }
    const double after = Alone(*engine);
    alone.push_back(std::min(before, after));
    ratios.push_back(2 * served / (before + after));
    fmt::print("round {}: alone {:.3f} s, served {:.3f} s, alone {:.3f} s: {:+.1f} %\n", round + 1,
               before, served, after, 100 * (ratios.back() - 1));
  }
  std::sort(ratios.begin(), ratios.end());
  constexpr double kTokens = kStreams * kOutputTokens;
  fmt::print(
      "{}, {} streams of {} tokens: the server takes {:+.1f} % of the engine's time "
      "(median of {}), which makes {:.0f} tokens/s at best\n",
      name, kStreams, kOutputTokens, 100 * (ratios[ratios.size() / 2] - 1), rounds,
      kTokens / *std::min_element(alone.begin(), alone.end()));
}

}  // namespace
}  // namespace trimtab

int main(int argc, char** argv) {
  try {
    trimtab::Run(argc > 1 ? argv[1] : "gpt2-124m", argc > 2 ? std::stoi(argv[2]) : 5);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
