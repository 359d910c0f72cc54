// What layers keep between their passes, against figures worked out by hand from the terms that
// Korthikanti et al. (arXiv:2205.05198, section 4 and table 2) give for a GPT layer in 16 bits, of
// s tokens in b sequences, hidden size h, a heads, on t tensor-parallel ranks:
//
//   QKV input 2sbh | Q, K 4sbh | V 2sbh | projection input 2sbh
//   fc1 input 2sbh | activation input 8sbh | activation result 8sbh | two norms' inputs 4sbh
//   softmax and its dropout 5as^2b | masks of two dropouts 2sbh
//
// The last line is not kept here: attention is computed tile by tile, and there is no dropout. So
// the paper's 34 sbh is 32, and its 10 sbh that tensor parallelism leaves whole are 8. Tile by tile
// also keeps the log-sum-exp of every head and token, 4abs; and the paper leaves out the statistics
// of the norms, two fp32 values a token each.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/model/gpt_model.h"

namespace trimtab {
namespace {

constexpr int64_t kSequence = 2048;  // s
constexpr int64_t kHeads = 96;       // a
constexpr int64_t kHidden = 12288;   // h
constexpr int64_t kVocab = 51200;    // v

struct Layout {
  int64_t micro_batch;  // b
  int64_t tp;           // t
  bool sequence_parallel;
};

std::string Describe(const std::string& plan, const Layout& layout) {
  return fmt::format("{} b={} t={} sp={}", plan, layout.micro_batch, layout.tp,
                     layout.sequence_parallel);
}

/// Bytes of activations in use after the forward pass of GPT-3 175B with `layers` layers.
int64_t KeptBytes(const std::string& plan, const Layout& layout, int64_t layers) {
  const ModelConfig model = {.vocab_size = kVocab,
                             .hidden_size = kHidden,
                             .num_layers = layers,
                             .num_heads = kHeads,
                             .num_kv_heads = kHeads,
                             .ffn_hidden_size = 4 * kHidden,
                             .max_sequence_length = kSequence};
  ParallelConfig parallel;
  parallel.tp = layout.tp;
  parallel.sequence_parallel = layout.sequence_parallel;
  parallel.micro_batch = layout.micro_batch;
  parallel.numerics.precision = Precision::kBf16;
  parallel.recompute = ParseRecompute(plan, "plan");
  const std::unique_ptr<Device> device = MakeMetaDevice(1, DeviceKind::kCuda);
  const ParallelContext ranks = MakeMetaContext(parallel, 0);
  ParameterStore store;
  const GptModel gpt(store,
                     LayerContext{.device = *device,
                                  .parallel = ranks,
                                  .model = model,
                                  .micro_batch = layout.micro_batch,
                                  .sequence = kSequence,
                                  .types = TypesOf(parallel.numerics)},
                     WholeModel(model));
  store.Allocate(*device, DType::kBf16, DType::kF32);
  const MicroBatch batch = NewBatches(gpt.context(), gpt.chunk(), 1).front();
  Tensor scalar = Tensor::Empty(*device, {1}, DType::kF32, MemoryTag::kOptimizer);
  MicroBatchState state;
  gpt.Forward(batch, scalar, scalar, state);
  return device->memory().current_by_tag()[static_cast<size_t>(MemoryTag::kActivations)];
}

/// What four more layers keep.
int64_t FourLayers(const std::string& plan, const Layout& layout) {
  return KeptBytes(plan, layout, 8) - KeptBytes(plan, layout, 4);
}

constexpr Layout kLayouts[] = {{1, 1, false}, {1, 8, false}, {1, 8, true}, {4, 2, true}};

/// What a layer keeps, as multiples.
struct Kept {
  int64_t whole;        // of sbh, on every tensor-parallel rank unless sequence parallel
  int64_t split;        // of sbh, over the tensor-parallel ranks
  int64_t log_sum_exp;  // of 4abs, likewise
  int64_t norms;        // of 8sb, like `whole`
};

int64_t Bytes(const Kept& kept, const Layout& layout) {
  const int64_t sb = kSequence * layout.micro_batch;
  const int64_t whole = kept.whole * sb * kHidden + kept.norms * 8 * sb;
  const int64_t split = kept.split * sb * kHidden + kept.log_sum_exp * 4 * kHeads * sb;
  return whole / (layout.sequence_parallel ? layout.tp : 1) + split / layout.tp;
}

struct Case {
  const char* plan;
  Kept kept;
};
constexpr Case kCases[] = {
    {"none", {8, 24, 1, 2}},
    // The paper's selective recomputation: of the core of attention only its result was left, which
    // the projection reads.
    {"selective", {8, 22, 0, 2}},
    // Neither of what QKV and fc1 read.
    {"selective:layernorm", {4, 24, 1, 0}},
    {"selective:mlp_act", {8, 16, 1, 2}},
    // Of norm and MLP, only the norm's input.
    {"selective:mlp", {6, 8, 1, 1}},
    {"selective:layernorm+mlp", {4, 8, 1, 0}},
    {"selective:mlp_act+mlp", {6, 8, 1, 1}},
    {"selective:core_attn+layernorm+mlp_act", {4, 14, 0, 0}},
    {"selective:core_attn+layernorm+mlp_act+mlp+logits", {4, 6, 0, 0}},
    // Only the layer's input.
    {"full", {2, 0, 0, 0}},
};

TEST(ActivationMemory, OfALayerIsWhatThePublishedTermsAddUpTo) {
  for (const Case& each : kCases) {
    for (const Layout& layout : kLayouts) {
      EXPECT_EQ(FourLayers(each.plan, layout), 4 * Bytes(each.kept, layout))
          << Describe(each.plan, layout);
    }
  }
}

TEST(ActivationMemory, OfAGpt3LayerIs) {
  // sbh = 2048 * 12288 = 25,165,824 for one sequence; 8sb = 16,384; 4abs = 786,432.
  EXPECT_EQ(FourLayers("none", {1, 1, false}) / 4, 805'306'368 + 786'432 + 32'768);
  EXPECT_EQ(FourLayers("none", {1, 8, false}) / 4, 276'824'064 + 98'304 + 32'768);
  EXPECT_EQ(FourLayers("none", {1, 8, true}) / 4, 100'663'296 + 98'304 + 4'096);
  EXPECT_EQ(FourLayers("selective", {1, 8, true}) / 4, 94'371'840 + 4'096);
  EXPECT_EQ(FourLayers("full", {1, 8, false}) / 4, 50'331'648);
  EXPECT_EQ(FourLayers("full", {1, 8, true}) / 4, 6'291'456);
}

TEST(ActivationMemory, OfFullRecomputationIsOneInputForEachGroup) {
  for (const Layout& layout : kLayouts) {
    const int64_t input = Bytes({2, 0, 0, 0}, layout);
    const int64_t everything = Bytes({8, 24, 1, 2}, layout);
    EXPECT_EQ(FourLayers("full:uniform:2", layout), 2 * input);
    EXPECT_EQ(FourLayers("full:uniform:4", layout), input);
    // Three groups of layers 0 to 7, two of layers 0 to 3.
    EXPECT_EQ(FourLayers("full:uniform:3", layout), input);
    EXPECT_EQ(FourLayers("full:block:5", layout), input + 3 * everything);
    EXPECT_EQ(FourLayers("full:block:1", layout), 4 * everything);
  }
}

TEST(ActivationMemory, OfTheLogitsIsTwoBytesEach) {
  for (const Layout& layout : kLayouts) {
    const int64_t logits = 2 * kSequence * layout.micro_batch * kVocab / layout.tp;
    EXPECT_EQ(KeptBytes("none", layout, 1) - KeptBytes("selective:logits", layout, 1), logits);
  }
}

}  // namespace
}  // namespace trimtab
