// The model that serves against PyTorch, and against itself however a text reaches it.
#include "engine/infer/executor/serving_model.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/base/units.h"
#include "tests/engine/infer/golden_weights.h"
#include "tests/engine/train/families.h"

namespace trimtab {
namespace {

// The goldens are double precision rounded to fp32; the engine computes in fp32.
constexpr double kLogitTolerance = 2e-5;  // absolute, logits are of size 1

/// One rank, with the sequences of a golden file and as many blocks as they need.
class Served {
 public:
  Served(const GoldenWeights& weights, const ServingConfig& config)
      : weights_(weights),
        config_(ResolveServing(config)),
        device_(MakeCpuDevice(static_cast<int>(config.threads_per_rank))),
        parallel_(MakeMetaContext(config_.layout, 0)),
        model_(config_, parallel_, *device_, &weights) {}

  /// The next `count` tokens of sequence `index`, of which all logits are asked.
  PlannedSequence Next(int64_t index, int64_t begin, int64_t count) const {
    const std::vector<int32_t> tokens = weights_.Tokens(index);
    const auto first = tokens.begin() + begin;
    return {.tokens = {first, first + count},
            .first_position = begin,
            .blocks = BlocksOf(index),
            .logits = count};
  }
  std::vector<float> Run(std::vector<PlannedSequence> sequences) {
    return model_.Run({std::move(sequences)});
  }

 private:
  /// Blocks of different sequences lie among each other, in no order.
  std::vector<int32_t> BlocksOf(int64_t index) const {
    const int64_t count = CeilDiv(weights_.sequence_length(), config_.block_size);
    std::vector<int32_t> blocks;
    for (int64_t i = 0; i < count; ++i) {
      blocks.push_back(static_cast<int32_t>((count - 1 - i) * weights_.sequences() + index));
    }
    return blocks;
  }

  const GoldenWeights& weights_;
  ServingConfig config_;
  std::unique_ptr<Device> device_;
  ParallelContext parallel_;
  ServingModel model_;
};

void Append(const std::vector<float>& more, std::vector<float>& values) {
  values.insert(values.end(), more.begin(), more.end());
}

class ServingModelTest : public testing::TestWithParam<std::string> {
 protected:
  /// The logits of sequence 0, in one pass.
  std::vector<float> WholeText() {
    Served served(weights_, GoldenServing(weights_));
    return served.Run({served.Next(0, 0, weights_.sequence_length())});
  }

  GoldenWeights weights_{GetParam()};
};

TEST_P(ServingModelTest, OnePassMatchesPyTorch) {
  const std::vector<float> expected = weights_.Logits(0);
  const std::vector<float> actual = WholeText();
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], kLogitTolerance) << "element " << i;
  }
}

TEST_P(ServingModelTest, ChunksBlocksAndThreadsChangeNoBit) {
  const std::vector<float> expected = WholeText();
  const int64_t length = weights_.sequence_length();
  for (const int64_t block_size : {1, 3, 16}) {
    for (const int64_t chunk : {int64_t{1}, int64_t{5}, length}) {
      ServingConfig config = GoldenServing(weights_);
      config.block_size = block_size;
      config.threads_per_rank = chunk == 5 ? 3 : 1;
      Served served(weights_, config);
      std::vector<float> actual;
      for (int64_t begin = 0; begin < length; begin += chunk) {
        Append(served.Run({served.Next(0, begin, std::min(chunk, length - begin))}), actual);
      }
      EXPECT_EQ(actual, expected) << "blocks of " << block_size << ", chunks of " << chunk;
    }
  }
}

TEST_P(ServingModelTest, OtherSequencesInTheStepChangeNoBit) {
  const std::vector<float> expected = WholeText();
  const int64_t length = weights_.sequence_length();
  ASSERT_GE(weights_.sequences(), 2);
  Served served(weights_, GoldenServing(weights_));
  std::vector<float> actual;
  // The other one is always three tokens ahead, and stands first in every other step.
  served.Run({served.Next(1, 0, 3)});
  for (int64_t t = 0; t < length; ++t) {
    std::vector<PlannedSequence> sequences = {served.Next(0, t, 1)};
    const bool both = t + 3 < length;
    const bool first = t % 2 == 0 || !both;
    if (both)
      sequences.insert(first ? sequences.end() : sequences.begin(), served.Next(1, t + 3, 1));
    const std::vector<float> logits = served.Run(std::move(sequences));
    const auto vocab = weights_.model().vocab_size;
    const auto begin = logits.begin() + (first ? 0 : vocab);
    Append({begin, begin + vocab}, actual);
  }
  EXPECT_EQ(actual, expected);
}

INSTANTIATE_TEST_SUITE_P(Families, ServingModelTest, testing::ValuesIn(FamilyNames()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace trimtab
