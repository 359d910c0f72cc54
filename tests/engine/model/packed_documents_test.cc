// Documents that are packed into one sequence, with attention masked by document, have the losses
// and gradients of each document alone: in every family of models.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/model/gpt_model.h"
#include "tests/engine/train/families.h"

namespace trimtab {
namespace {

/// Relative; fp32 sums in another order.
constexpr double kTolerance = 1e-5;

/// Lengths of documents that fill a sequence of 16; the shortest has no target.
constexpr int64_t kLengths[] = {6, 1, 5, 4};

struct Document {
  std::vector<int32_t> tokens;
};

std::vector<Document> Documents(int64_t vocab_size) {
  std::mt19937 random(5);
  std::uniform_int_distribution<int32_t> id(0, static_cast<int32_t>(vocab_size - 1));
  std::vector<Document> documents;
  for (const int64_t length : kLengths) {
    auto& tokens = documents.emplace_back().tokens;
    for (int64_t i = 0; i < length; ++i) tokens.push_back(id(random));
  }
  return documents;
}

/// A model that adds up losses and gradients of sequences of documents.
class Summed {
 public:
  explicit Summed(const RunConfig& run)
      : run_(run), device_(MakeCpuDevice(1)), parallel_(MakeMetaContext(run_.layout, 0)) {
    loss_ = Tensor::Empty(*device_, {1}, DType::kF32, MemoryTag::kWorkspace);
    scale_ = Tensor::Empty(*device_, {1}, DType::kF32, MemoryTag::kWorkspace);
    loss_.f32()[0] = 0.0f;
    scale_.f32()[0] = 1.0f;
  }

  void Add(std::span<const Document> documents) {
    std::vector<int32_t> tokens;
    std::vector<int32_t> targets;
    std::vector<int32_t> positions;
    for (const Document& each : documents) {
      for (size_t i = 0; i < each.tokens.size(); ++i) {
        tokens.push_back(each.tokens[i]);
        targets.push_back(i + 1 < each.tokens.size() ? each.tokens[i + 1] : -1);
        positions.push_back(static_cast<int32_t>(i));
      }
    }
    const bool packed = documents.size() > 1;
    PackingConfig packing;
    if (packed) packing.mask = AttentionMask::kDocuments;
    ParameterStore store;
    const GptModel model(store,
                         LayerContext{.device = *device_,
                                      .parallel = parallel_,
                                      .model = run_.model,
                                      .micro_batch = 1,
                                      .sequence = std::ssize(tokens),
                                      .packing = &packing},
                         WholeModel(run_.model));
    store.Allocate(*device_, DType::kF32, DType::kF32);
    store.Initialize(3);
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    for (Parameter* parameter : store.parameters()) {
      const bool norm = parameter->spec.init == InitKind::kOnes;
      for (int64_t i = 0; i < parameter->numel(); ++i) {
        parameter->weight.f32()[i] = norm ? 1.0f + 0.1f * normal(random) : 0.2f * normal(random);
      }
    }
    MicroBatch batch = NewBatches(model.context(), model.chunk(), 1).front();
    ASSERT_EQ(batch.positions.defined(), packed);
    CopyFromHost(batch.tokens, tokens);
    CopyFromHost(batch.targets, targets);
    if (packed) CopyFromHost(batch.positions, positions);
    MicroBatchState state;
    model.Forward(batch, scale_, loss_, state);
    model.Backward(state, {}, /*accumulate=*/false);
    gradients_.resize(store.parameters().size());
    for (size_t p = 0; p < gradients_.size(); ++p) {
      const Parameter& parameter = *store.parameters()[p];
      gradients_[p].resize(static_cast<size_t>(parameter.numel()));
      for (size_t i = 0; i < gradients_[p].size(); ++i) {
        gradients_[p][i] += parameter.gradient.f32()[i];
      }
    }
  }

  double loss() const { return loss_.f32()[0]; }
  const std::vector<std::vector<double>>& gradients() const { return gradients_; }

 private:
  RunConfig run_;
  std::unique_ptr<Device> device_;
  ParallelContext parallel_;
  Tensor loss_;
  Tensor scale_;
  std::vector<std::vector<double>> gradients_;
};

class PackedDocumentsTest : public testing::TestWithParam<std::string> {};

TEST_P(PackedDocumentsTest, HaveTheLossesAndGradientsOfEachAlone) {
  RunConfig run = FamilyRun(GetParam());
  // These losses are of whole sequences.
  run.model.moe.aux_loss_coeff = 0;
  const std::vector<Document> documents = Documents(run.model.vocab_size);
  Summed packed(run);
  packed.Add(documents);
  Summed alone(run);
  for (const Document& each : documents) alone.Add(std::span(&each, 1));

  EXPECT_GT(alone.loss(), 1.0);
  EXPECT_NEAR(packed.loss(), alone.loss(), kTolerance * alone.loss());
  ASSERT_EQ(packed.gradients().size(), alone.gradients().size());
  double all_squares = 0;
  for (size_t p = 0; p < alone.gradients().size(); ++p) {
    double squares = 0;
    double differences = 0;
    for (size_t i = 0; i < alone.gradients()[p].size(); ++i) {
      const double expected = alone.gradients()[p][i];
      squares += expected * expected;
      differences += std::pow(packed.gradients()[p][i] - expected, 2);
    }
    all_squares += squares;
    EXPECT_LE(std::sqrt(differences), 10 * kTolerance * std::sqrt(squares) + 1e-5)
        << "parameter " << p;
  }
  EXPECT_GT(all_squares, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, PackedDocumentsTest, testing::ValuesIn(FamilyNames()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace trimtab
