// What the server costs: tokens per second of 16 streams over HTTP, against the engine's own steps,
// in alternating rounds of one run. The clients are one thread that only looks for the ends of the
// answers: what it does is on the same cores and counts too.
//
//   server_benchmark [MODEL [ROUNDS]]
#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/mix.h"
#include "engine/data/tokenizer/hugging_face_tokenizer.h"
#include "engine/families/load_config.h"
#include "engine/infer/replicas/make_engine.h"
#include "engine/runtime/weights/random_weights.h"
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

/// A connection to a server of this machine that has sent a request for a stream.
pollfd Ask(int port, const std::string& model, int64_t stream) {
  const std::string body = nlohmann::json{{"model", model},
                                          {"prompt", PromptOf(stream)},
                                          {"max_tokens", kOutputTokens},
                                          {"temperature", 0},
                                          {"ignore_eos", true},
                                          {"stream", true},
                                          {"stream_options", {{"include_usage", true}}}}
                               .dump();
  const std::string request = fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
      "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
      body.size(), body);
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int connected = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  TRIMTAB_ASSERT(connected == 0, "nobody listens on port {}", port);
  const ssize_t sent = ::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
  TRIMTAB_ASSERT(sent == std::ssize(request), "a new connection takes {} bytes", sent);
  return {.fd = fd, .events = POLLIN, .revents = 0};
}

/// The same through a server.
double Served(int port, const std::string& model) {
  const Clock::time_point start = Clock::now();
  std::vector<pollfd> streams;
  for (int64_t stream = 0; stream < kStreams; ++stream) {
    streams.push_back(Ask(port, model, stream));
  }
  std::vector<std::string> answers(kStreams);
  for (int64_t open = kStreams; open > 0;) {
    ::poll(streams.data(), streams.size(), -1);
    for (size_t i = 0; i < streams.size(); ++i) {
      if (streams[i].revents == 0) continue;
      std::array<char, 4096> bytes{};
      const ssize_t come = ::read(streams[i].fd, bytes.data(), bytes.size());
      if (come > 0) {
        answers[i].append(bytes.data(), static_cast<size_t>(come));
        continue;
      }
      ::close(std::exchange(streams[i].fd, -1));  // poll leaves it out from now on
      --open;
    }
  }
  const double seconds = SecondsSince(start);
  for (const std::string& answer : answers) {
    TRIMTAB_ASSERT(
        answer.find(fmt::format("\"completion_tokens\":{}", kOutputTokens)) != std::string::npos &&
            answer.find("data: [DONE]") != std::string::npos,
        "not a whole answer: {}", answer);
  }
  return seconds;
}

void Run(const std::string& name, int rounds) {
  const ModelConfig model = LoadModelConfig(name);
  const RandomWeights weights(model);
  ServingConfig config;
  config.model = model;
  config.prefix_cache = false;
  config.limits.sequences = kStreams;
  config.limits.sequence_length = kPromptTokens + kOutputTokens;
  const std::unique_ptr<Engine> engine = MakeEngine(config, weights);
  const std::unique_ptr<Tokenizer> tokenizer = WordsFor(model.vocab_size);
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
      served = Served(server.port(), name);
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
    trimtab::Run(argc > 1 ? argv[1] : "gpt2-124m", argc > 2 ? std::stoi(argv[2]) : 15);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
