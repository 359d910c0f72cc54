#include "tools/validation/held_out.h"

#include <algorithm>
#include <cmath>

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/infer/executor/distributed_executor.h"
#include "engine/infer/quantize/perplexity.h"

namespace trimtab {
namespace {

constexpr int64_t kMostTextBytes = int64_t{64} << 20;

}  // namespace

std::vector<int32_t> TokensOfFile(const std::string& path, int64_t most,
                                  const Tokenizer& tokenizer) {
  if (path.empty()) return {};
  std::vector<int32_t> tokens = tokenizer.prompt_prefix();
  tokenizer.Encode(ReadTextFile(path, kMostTextBytes), tokens);
  if (tokens.size() < 2) {
    throw InputError(fmt::format("{}: holds {}; expected at least 2", path,
                                 Counted(std::ssize(tokens), "token")));
  }
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(most)));
  return tokens;
}

void RequireOriginal(const WeightSource& source) {
  if (source.format() == WeightFormat::kF32) return;
  throw InputError(
      fmt::format("the weights are already {}; expected unquantized ones", Name(source.format())));
}

ServingConfig ReadingConfig(const ModelConfig& model, WeightFormat weights, DType cache,
                            int64_t threads) {
  constexpr int64_t kLength = 256;
  ServingConfig config;
  config.model = model;
  config.weights = weights;
  config.cache = cache;
  config.threads_per_rank = threads;
  const int64_t length = std::min(kLength, model.max_sequence_length);
  config.limits = {.sequences = 1, .tokens_per_step = length, .sequence_length = length};
  return ResolveServing(config);
}

double PerplexityOf(const WeightSource& source, WeightFormat weights, DType cache, int64_t threads,
                    std::span<const int32_t> tokens) {
  const ServingConfig config = ReadingConfig(source.model(), weights, cache, threads);
  DistributedExecutor runner(config, source);
  return std::exp(MeanTokenLoss(config, runner, tokens));
}

void HeldOutFlags::Declare(FlagSet& flags, const std::string& help) {
  flags.Text("--held-out FILE", file, help);
  flags.Integer("--held-out-tokens", tokens, 2, int64_t{1} << 24, "most tokens of --held-out");
}

}  // namespace trimtab
