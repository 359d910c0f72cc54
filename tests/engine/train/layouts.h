// Every legal layout of a small model, for tests of what holds for all of them.
//
// Keys are bound one after the other, and the legality rules say what remains: a dimension is
// walked from the day its -unsupported rule goes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/run_config.h"

namespace trimtab {

/// Models of six layers.
enum class SmallModel : uint8_t {
  kGpt2,      // heads, batch and sequence take sizes of 2, 4 and 8; of those below Llama as well
  kLlama,     // take 2, 3 and 6
  kMixtral,   // 8 experts, two of which take a token by their softmax
  kDeepSeek,  // 16 in groups, by sigmoids and a bias, beside shared ones; the first layer is dense
  kSwitch,    // GPT-2 with 2 experts in every other layer, one of which takes a token by Sinkhorn's
              // iteration and drops what is too much
};
inline constexpr SmallModel kSmallModels[] = {SmallModel::kGpt2, SmallModel::kLlama,
                                              SmallModel::kMixtral, SmallModel::kDeepSeek,
                                              SmallModel::kSwitch};
inline constexpr SmallModel kDenseModels[] = {SmallModel::kGpt2, SmallModel::kLlama};
/// "gpt2", "llama", "mixtral", "deepseek", "switch".
std::string_view Name(SmallModel model);

/// A run of the model, to be laid out.
RunConfig RunToLayOut(SmallModel model);
/// The same of a dense model for fp8, which takes multiples of 16: tp of 2 and 4.
RunConfig RunToLayOutInFp8(bool llama);

class LayoutSpace {
 public:
  /// Every legal layout of the model and the batch of `base` on at most `most_ranks` ranks, over
  /// all keys but those of precision and optimizer state, which stay as they are in base.layout.
  /// Keys without a short list of values take some: see kRows in layouts.cc.
  explicit LayoutSpace(RunConfig base, int64_t most_ranks = 8);

  size_t size() const { return layouts_.size(); }
  /// `base` under layout number `index`.
  RunConfig operator[](size_t index) const;
  /// In how many keys two layouts differ.
  int Differences(size_t left, size_t right) const;

  /// Numbers of layouts drawn by `seed`, in ascending order: at least `count` of them, such that
  /// all values of keys and all pairs of values of two keys that the space has occur.
  std::vector<size_t> Sample(size_t count, uint32_t seed) const;

  /// Keys that are walked, at most.
  static constexpr size_t kMaxKeys = 24;

 private:
  /// The number of each key's value among its values.
  using Choices = std::array<uint8_t, kMaxKeys>;

  void Descend(size_t depth, int64_t most_ranks, RunConfig& run, Choices& choices);

  RunConfig base_;
  std::vector<ParallelConfig> layouts_;
  std::vector<Choices> choices_;
};

/// Every legal layout of RunToLayOut(model) on up to eight ranks. Walked once.
const LayoutSpace& SpaceToLayOut(SmallModel model);

/// A layout as part of the name of a test.
std::string TestName(const ParallelConfig& layout);

}  // namespace trimtab
