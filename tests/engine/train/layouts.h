// Every legal layout of a small model, for tests of what holds for all of them.
//
// Keys are bound one after the other, and the legality rules say what remains: a dimension is
// walked from the day its -unsupported rule goes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/config/layout/layout_keys.h"
#include "engine/config/run/run_config.h"
#include "tests/engine/train/small_models.h"

namespace trimtab {

/// Returns the values that a key lists: of "0 | 1", "0..3", "p2p | all_gather".
std::vector<std::string> ListedValues(const LayoutKey& key);

class LayoutSpace {
 public:
  /// The legal layouts of the model and the batch of `base` on at most `most_ranks` ranks, over
  /// all keys but those of precision and optimizer state, which stay as they are in base.layout:
  /// every combination of the keys that say who does what, each with every value of the keys that
  /// say how (kCrossed and kAlongside in layouts.cc). Keys without a short list of values take
  /// some.
  explicit LayoutSpace(RunConfig base, int64_t most_ranks = 8);

  size_t size() const { return layouts_.size(); }
  /// `base` under layout number `index`.
  RunConfig operator[](size_t index) const;
  /// In how many keys two layouts differ.
  int Differences(size_t left, size_t right) const;

  /// Numbers of layouts drawn by `seed`, in ascending order: at least `count` of them, such that
  /// all values of keys and all pairs of values of two keys that the space has occur.
  std::vector<size_t> Sample(size_t count, uint32_t seed) const;

  /// The names of the keys that are walked alongside.
  static std::vector<std::string> AlongsideKeys();

  /// Keys that are walked, at most.
  static constexpr size_t kMaxKeys = 24;

 private:
  /// The number of each key's value among its values.
  using Choices = std::array<uint8_t, kMaxKeys>;

  void Descend(size_t depth, int64_t most_ranks, RunConfig& run, Choices& choices);
  /// Adds the layouts that have the crossed keys of `crossed`, whose others have their defaults.
  void AddAlongside(const RunConfig& crossed, Choices choices);

  RunConfig base_;
  std::mt19937 random_{1};
  std::vector<ParallelConfig> layouts_;
  std::vector<Choices> choices_;
};

/// Every legal layout of RunToLayOut(model) on up to eight ranks. Walked once.
const LayoutSpace& SpaceToLayOut(SmallModel model);

/// A layout as part of the name of a test.
std::string TestName(const ParallelConfig& layout);

}  // namespace trimtab
