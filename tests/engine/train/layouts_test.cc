// The walk over layouts misses none, and a sample of it has everything beside everything.
#include "tests/engine/train/layouts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <unordered_set>

#include "engine/config/layout/layout_keys.h"
#include "engine/config/rules/rules.h"

namespace trimtab {
namespace {

TEST(Layouts, AreLegalAndEachOnce) {
  for (const SmallModel model : kSmallModels) {
    std::unordered_set<std::string> seen;
    for (size_t i = 0; i < SpaceToLayOut(model).size(); ++i) {
      const RunConfig run = SpaceToLayOut(model)[i];
      ASSERT_EQ(FirstBrokenRule(run), nullptr) << ToString(run.layout);
      ASSERT_LE(run.layout.world_size(), 8);
      ASSERT_TRUE(seen.insert(ToString(run.layout)).second) << ToString(run.layout);
    }
    RecordProperty(fmt::format("layouts_of_a_{}", Name(model)), std::to_string(seen.size()));
  }
}

TEST(Layouts, HaveEverySizeOfEveryDimension) {
  std::map<std::string, std::set<int64_t>> sizes;
  for (const SmallModel model : kSmallModels) {
    for (size_t i = 0; i < SpaceToLayOut(model).size(); ++i) {
      const ParallelConfig layout = SpaceToLayOut(model)[i].layout;
      sizes["tp"].insert(layout.tp);
      sizes["cp"].insert(layout.cp);
      sizes["pp"].insert(layout.pp);
      sizes["dp"].insert(layout.dp);
      sizes["ep"].insert(layout.ep);
      sizes["etp"].insert(layout.etp);
      sizes["world"].insert(layout.world_size());
    }
  }
  EXPECT_EQ(sizes["tp"], (std::set<int64_t>{1, 2, 3, 4, 6, 8}));
  EXPECT_EQ(sizes["cp"], (std::set<int64_t>{1, 2, 3, 4, 6, 8}));
  EXPECT_EQ(sizes["pp"], (std::set<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(sizes["dp"], (std::set<int64_t>{1, 2, 3, 4, 6, 8}));
  EXPECT_EQ(sizes["ep"], (std::set<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(sizes["etp"], (std::set<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(sizes["world"], (std::set<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

/// The layout with the default of every key that is walked alongside.
ParallelConfig Crossed(ParallelConfig layout) {
  const std::vector<std::string> alongside = LayoutSpace::AlongsideKeys();
  for (const LayoutKey& key : LayoutKeys()) {
    if (std::find(alongside.begin(), alongside.end(), key.name) == alongside.end()) continue;
    key.parse(key.print(ParallelConfig()), key.name, layout);
  }
  return layout;
}

// What two layouts make when one takes some keys of the other is in the space, if it is legal: the
// walk gives up no branch that has a legal layout. Of a key that is walked alongside, its value is
// there with the same crossed keys.
TEST(Layouts, HaveAllThatTwoOfThemMakeTogether) {
  constexpr int kTries = 30000;
  std::mt19937 random(11);
  for (const SmallModel model : kSmallModels) {
    const LayoutSpace& space = SpaceToLayOut(model);
    std::unordered_set<std::string> known;
    for (size_t i = 0; i < space.size(); ++i) {
      const ParallelConfig layout = space[i].layout;
      const std::string crossed = ToString(Crossed(layout));
      for (const LayoutKey& key : LayoutKeys()) {
        known.insert(crossed + " " + key.name + "=" + key.print(layout));
      }
    }
    int legal = 0;
    for (int i = 0; i < kTries; ++i) {
      RunConfig run = space[random() % space.size()];
      run.layout = Crossed(run.layout);
      const ParallelConfig other = space[random() % space.size()].layout;
      const auto take = [&](const LayoutKey& key, const ParallelConfig& from) {
        key.parse(key.print(from), key.name, run.layout);
      };
      for (uint32_t keys = 1 + random() % 4; keys > 0; --keys) {
        take(LayoutKeys()[random() % LayoutKeys().size()], Crossed(other));
      }
      const std::string crossed = ToString(run.layout);
      const LayoutKey& key = LayoutKeys()[random() % LayoutKeys().size()];
      const ParallelConfig before = run.layout;
      take(key, other);
      if (Crossed(run.layout) != before) continue;
      if (run.layout.world_size() > 8 || FirstBrokenRule(run) != nullptr) continue;
      // Legal, but nothing is there to overlap.
      if (!run.layout.overlap_grad_reduce && run.layout.dp * run.layout.cp == 1) continue;
      ++legal;
      const std::string made = crossed + " " + key.name + "=" + key.print(run.layout);
      ASSERT_TRUE(known.contains(made)) << made;
    }
    EXPECT_GT(legal, kTries / 10);
  }
}

/// "key=value" of every key; lists of layers count as one value, and lists of plans.
std::vector<std::string> FeaturesOf(const ParallelConfig& layout) {
  std::vector<std::string> features;
  for (const LayoutKey& key : LayoutKeys()) {
    std::string value = key.print(layout);
    const std::string name = key.name;
    const bool list = name == "stages" ? value != "auto" : value.find('/') != std::string::npos;
    features.push_back(name + "=" + (list ? "list" : value));
  }
  return features;
}

std::set<std::pair<std::string, std::string>> PairsOf(const LayoutSpace& space,
                                                      const std::vector<size_t>& layouts) {
  std::set<std::pair<std::string, std::string>> pairs;
  for (const size_t index : layouts) {
    const std::vector<std::string> features = FeaturesOf(space[index].layout);
    for (size_t i = 0; i < features.size(); ++i) {
      for (size_t j = i + 1; j < features.size(); ++j) pairs.emplace(features[i], features[j]);
    }
  }
  return pairs;
}

TEST(Layouts, SampleHasEveryPairOfValues) {
  for (const SmallModel model : kSmallModels) {
    const LayoutSpace space(RunToLayOut(model), 2);
    std::vector<size_t> all;
    for (size_t i = 0; i < space.size(); ++i) all.push_back(i);
    const std::vector<size_t> sample = space.Sample(1, /*seed=*/5);
    EXPECT_EQ(PairsOf(space, sample), PairsOf(space, all));
    EXPECT_LT(sample.size(), 200u);
    EXPECT_EQ(space.Sample(1, 5), sample) << "the same seed draws the same";
    EXPECT_EQ(space.Sample(sample.size() + 100, 5).size(), sample.size() + 100);
  }
}

}  // namespace
}  // namespace trimtab
