// One process of an engine whose ranks are processes:
//
//   mpi_serving_run LAYOUT FAMILY [DRAFT_FAMILY | PREFILL]
//
// The first one serves a golden sequence in chunks and says how far its logits are off; it fails
// where that is too far. With a draft, or with so many replicas for prompts alone, it answers a few
// requests, and says what and in how many steps. Started by mpi_serving_test.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "engine/base/error.h"
#include "engine/comm/mpi_launch.h"
#include "engine/config/json/text_values.h"
#include "engine/infer/executor/distributed_executor.h"
#include "engine/infer/replicas/make_engine.h"
#include "tests/engine/infer/golden_weights.h"

namespace trimtab {
namespace {

constexpr float kLogitTolerance = 2e-5f;  // as of ranks that are threads

int Serve(const ServingConfig& config, const GoldenWeights& weights) {
  DistributedExecutor runner(config, weights);
  const std::vector<int32_t> tokens = weights.Tokens(0);
  std::vector<int32_t> blocks(tokens.size());
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<float> logits;
  const int64_t length = weights.sequence_length();
  for (int64_t begin = 0, step = 1; begin < length; begin += step++) {
    const int64_t count = std::min(step, length - begin);
    const auto first = tokens.begin() + begin;
    const std::vector<float> rows = runner.Run({{{.tokens = {first, first + count},
                                                  .first_position = begin,
                                                  .blocks = blocks,
                                                  .logits = count}}});
    logits.insert(logits.end(), rows.begin(), rows.end());
  }
  const std::vector<float> expected = weights.Logits(0);
  TRIMTAB_ASSERT(logits.size() == expected.size(), "{} logits, expected {}", logits.size(),
                 expected.size());
  float worst = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    worst = std::max(worst, std::abs(logits[i] - expected[i]));
  }
  fmt::print("off by {}, peak {} bytes\n", worst, runner.peak_mem_bytes());
  return worst < kLogitTolerance ? 0 : 1;
}

int Answer(const ServingConfig& config, const GoldenWeights& weights, const GoldenWeights* draft) {
  if (LaunchedRank() != 0) {
    FollowEngine(config, weights, draft);
    return 0;
  }
  const std::unique_ptr<Engine> engine = MakeEngine(config, weights, draft);
  for (int64_t i = 0; i < 6; ++i) {
    const std::vector<int32_t> text = weights.Tokens(i % weights.sequences());
    GenerationRequest request;
    request.prompt = {text.begin(), text.begin() + 3 + i};
    request.max_tokens = 9;
    engine->AddRequest(request);
  }
  std::map<RequestId, std::vector<int32_t>> answers;
  while (engine->HasWork()) {
    for (const RequestUpdate& update : engine->Step()) {
      for (const SampledToken& token : update.tokens) answers[update.id].push_back(token.id);
    }
  }
  for (const auto& [id, tokens] : answers) fmt::print("answer {}\n", fmt::join(tokens, " "));
  const EngineMetrics metrics = engine->metrics();
  fmt::print("{} of {} stood\n{} moved\n", metrics.accepted_tokens, metrics.proposed_tokens,
             metrics.moved_requests);
  return 0;
}

int Run(const std::string& layout, const std::string& family, const std::string& more) {
  try {
    const GoldenWeights weights(family);
    ServingConfig config = GoldenServing(weights);
    config.layout = ParseLayout(layout, 0);
    config = ResolveServing(config);
    if (ParseInteger(more, config.prefill)) return Answer(config, weights, nullptr);
    if (!more.empty()) {
      const GoldenWeights draft(more);
      config.draft = {draft.model(), draft.format(), /*tokens=*/4};
      return Answer(config, weights, &draft);
    }
    if (LaunchedRank() == 0) return Serve(config, weights);
    FollowPlans(config, weights);
  } catch (const Error& error) {
    fmt::print("{}\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}

}  // namespace
}  // namespace trimtab

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 64;
  return trimtab::Run(argv[1], argv[2], argc == 4 ? argv[3] : "");
}
