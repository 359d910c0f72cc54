#include "engine/infer/quantize/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/units.h"

namespace trimtab {
namespace {

/// -ln of the probability that the logits give `token`.
double TokenLoss(std::span<const float> logits, int32_t token) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float each : logits) sum += std::exp(static_cast<double>(each) - highest);
  return highest + std::log(sum) - static_cast<double>(logits[static_cast<size_t>(token)]);
}

}  // namespace

double MeanTokenLoss(const ServingConfig& config, ModelExecutor& runner,
                     std::span<const int32_t> tokens) {
  TRIMTAB_ASSERT(tokens.size() >= 2, "{} tokens, expected at least two", tokens.size());
  const auto length = static_cast<size_t>(config.limits.sequence_length);
  const auto vocab = static_cast<size_t>(runner.vocab_size());
  std::vector<int32_t> blocks(
      static_cast<size_t>(CeilDiv(config.limits.sequence_length, config.block_size)));
  std::iota(blocks.begin(), blocks.end(), 0);
  double sum = 0;
  int64_t count = 0;
  for (size_t begin = 0; begin + 1 < tokens.size(); begin += length) {
    const auto run = tokens.subspan(begin, std::min(length, tokens.size() - begin));
    if (run.size() < 2) break;
    // The last token has nothing to predict.
    const auto given = run.first(run.size() - 1);
    const std::vector<float> logits = runner.Run({{{.tokens = {given.begin(), given.end()},
                                                    .first_position = 0,
                                                    .blocks = blocks,
                                                    .logits = std::ssize(given)}}});
    for (size_t i = 0; i < given.size(); ++i) {
      sum += TokenLoss(std::span(logits).subspan(i * vocab, vocab), run[i + 1]);
      ++count;
    }
  }
  return sum / static_cast<double>(count);
}

}  // namespace trimtab
