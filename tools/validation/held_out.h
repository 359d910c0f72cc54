// How well weights predict a text that they were not trained on: what fewer bits cost in quality.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/data/tokenizer/tokenizer.h"
#include "engine/infer/serving_config.h"
#include "engine/runtime/weights/weight_source.h"
#include "tools/cli/flags.h"

namespace trimtab {

/// The first tokens of a file of text, `most` of them; none where `path` is empty. Throws
/// InputError where it has less than two.
std::vector<int32_t> TokensOfFile(const std::string& path, int64_t most,
                                  const Tokenizer& tokenizer);

/// Throws InputError where weights are rounded already: nothing says what they were.
void RequireOriginal(const WeightSource& source);

/// What serves one sequence at a time on a cpu, of a length to read texts in. Throws
/// InfeasibleError where the engine cannot store them so.
ServingConfig ReadingConfig(const ModelConfig& model, WeightFormat weights, DType cache,
                            int64_t threads);

/// The perplexity of a text by the weights of `source`, stored as ReadingConfig is told.
double PerplexityOf(const WeightSource& source, WeightFormat weights, DType cache, int64_t threads,
                    std::span<const int32_t> tokens);

/// The flags that name the text.
struct HeldOutFlags {
  std::string file;
  int64_t tokens = 8192;

  void Declare(FlagSet& flags, const std::string& help);
  std::vector<int32_t> Tokens(const Tokenizer& tokenizer) const {
    return TokensOfFile(file, tokens, tokenizer);
  }
};

}  // namespace trimtab
