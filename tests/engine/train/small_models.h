// Small models to be laid out over ranks in every way.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/config/run/run_config.h"

namespace trimtab {

/// Models of six layers.
enum class SmallModel : uint8_t {
  kGpt2,      // heads, batch and sequence take sizes of 2, 4 and 8, so that tensor-parallel ranks
              // share its two key/value heads; those below Llama take them as well
  kLlama,     // take 2, 3 and 6
  kMixtral,   // 8 experts, two of which take a token by their softmax
  kDeepSeek,  // 16 in groups, by sigmoids and a bias, beside shared ones; the first layer is dense
  kSwitch,    // GPT-2 with 2 experts in every other layer, one of which takes a token by Sinkhorn's
              // iteration and drops what is too much
  kGemma3,    // windows in two layers of three, which turn by a base of their own
  kOlmo3,     // the same; norms after attention and MLP alone, and over all queries and all keys,
              // whose two heads tensor-parallel ranks share
};
inline constexpr SmallModel kSmallModels[] = {
    SmallModel::kGpt2,   SmallModel::kLlama,  SmallModel::kMixtral, SmallModel::kDeepSeek,
    SmallModel::kSwitch, SmallModel::kGemma3, SmallModel::kOlmo3};
inline constexpr SmallModel kDenseModels[] = {SmallModel::kGpt2, SmallModel::kLlama};
/// "gpt2", "llama", "mixtral", "deepseek", "switch", "gemma3", "olmo3".
std::string_view Name(SmallModel model);

/// A run of the model, to be laid out.
RunConfig RunToLayOut(SmallModel model);
/// The same of a dense model for fp8, which takes multiples of 16: tp of 2 and 4.
RunConfig RunToLayOutInFp8(bool llama);

/// The same layout of a smaller run, which shows the same sooner: no more micro batches than fill
/// the pipeline and one, or without one than a first, one between and a last; and no more layers
/// than one for each chunk and another, of which the longest stage goes without the rest.
RunConfig Shortened(RunConfig run);

}  // namespace trimtab
