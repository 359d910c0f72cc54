// How near serving comes to what the machine can do, measured beside it in the same rounds:
// decoding against the bandwidth of reading, prompts against the rate of products, 16 sequences
// against one, and against what these limits leave of that: as many products as 16 tokens take, or
// reading the weights once, whichever is longer. Products are those of fp32; a matrix unit goes
// beyond them (engine/ops/cpu/packed/packed_tiles.h). A limit is measured right after what it
// limits and for about as long, and the ratio is the median over rounds: machines wander.
//
//   bazel run -c opt //tests/engine/infer:serving_benchmark -- [model] [threads] [rounds]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "engine/base/units.h"
#include "engine/families/load_config.h"
#include "engine/infer/executor/serving_model.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/runtime/weights/random_weights.h"

namespace trimtab {
namespace {

constexpr int64_t kPrompt = 512;
constexpr int64_t kContext = 64;  // tokens before those that are decoded
constexpr int64_t kSequences = 16;
constexpr double kLeastSeconds = 0.2;  // of what is timed

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Sequence `index` from position `begin` on.
PlannedSequence Rows(const ServingConfig& config, int64_t index, int64_t begin, int64_t count) {
  const int64_t each = CeilDiv(config.limits.sequence_length, config.block_size);
  std::vector<int32_t> blocks(static_cast<size_t>(each));
  std::iota(blocks.begin(), blocks.end(), static_cast<int32_t>(index * each));
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), static_cast<int32_t>(index));
  return {.tokens = tokens, .first_position = begin, .blocks = blocks, .logits = 1};
}

/// Weights by which a token is multiplied.
double MultipliedWeights(const ModelConfig& model) {
  const double layer =
      static_cast<double>(model.hidden_size * (model.qkv_size() + model.attention_size() +
                                               model.fc1_size() + model.ffn_hidden_size));
  return static_cast<double>(model.num_layers) * layer;
}

/// Seconds of a call of `limit`, which is called for as long as `seconds`.
double SecondsFor(double seconds, const std::function<void()>& limit) {
  int64_t calls = 0;
  const double spent = Seconds([&] {
    const auto start = std::chrono::steady_clock::now();
    do {
      limit();
      ++calls;
    } while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() <
             seconds);
  });
  return spent / static_cast<double>(calls);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

/// Of each round.
struct Rounds {
  std::vector<double> decode_s, of_reading, bandwidth;  // shares of, and bytes/s
  std::vector<double> prompt_s, of_products, rate;      // shares of, and FLOP/s
  std::vector<double> together, possible;               // times one sequence
};

void Run(const std::string& model_name, int threads, int rounds) {
  const RandomWeights weights(LoadModelConfig(model_name));
  const std::unique_ptr<Device> device = MakeCpuDevice(threads);
  // The limits: a sum over 512 MiB, and a product of 1536^3.
  const int64_t numel = int64_t{128} << 20;
  Tensor memory = Tensor::Empty(*device, {numel}, DType::kF32, MemoryTag::kActivations);
  Fill(memory, 1.0f);
  Tensor sum = Tensor::Empty(*device, {1}, DType::kF32, MemoryTag::kActivations);
  constexpr int64_t kSide = 1536;
  Tensor a = memory.Slice(0, {kSide, kSide});
  Tensor c = Tensor::Empty(*device, {kSide, kSide}, DType::kF32, MemoryTag::kActivations);
  for (const WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kInt4}) {
    ServingConfig config;
    config.model = weights.model();
    config.weights = format;
    config.limits = {
        .sequences = kSequences, .tokens_per_step = kPrompt, .sequence_length = kPrompt};
    config = ResolveServing(config);
    const ParallelContext parallel = MakeMetaContext(config.layout, 0);
    ServingModel model(config, parallel, *device, &weights);
    StepPlan one = {{Rows(config, 0, kContext, 1)}};
    StepPlan many;
    for (int64_t i = 0; i < kSequences; ++i) many.sequences.push_back(Rows(config, i, kContext, 1));
    const StepPlan prompt = {{Rows(config, 0, 0, kPrompt)}};
    const ModelConfig& m = config.model;
    const double bits = format == WeightFormat::kF32    ? 32
                        : format == WeightFormat::kBf16 ? 16
                        : format == WeightFormat::kInt8 ? 8
                                                        : 5;  // int4: a scale for every 32
    const double head = static_cast<double>(m.padded_vocab_size(1) * m.hidden_size);
    const double cache =
        static_cast<double>(m.num_layers * kContext *
                            PagedCacheBytesPerToken(m.num_kv_heads, m.head_size(), config.cache));
    const double bytes = (MultipliedWeights(m) + head) * bits / 8 + cache;
    const double attention = 4.0 * static_cast<double>(m.num_layers * m.attention_size()) *
                             (kPrompt * (kPrompt + 1) / 2.0);
    const double flops = 2 * MultipliedWeights(m) * kPrompt + 2 * head + attention;
    const double token_flops =
        2 * (MultipliedWeights(m) + head) +
        4.0 * static_cast<double>(m.num_layers * m.attention_size() * kContext);
    Rounds all;
    for (int round = 0; round < rounds; ++round) {
      model.Run(one);  // the next finds of the weights in the caches what such a step leaves
      const double alone_s = SecondsFor(kLeastSeconds, [&] { model.Run(one); });
      const double read_s = SecondsFor(kLeastSeconds, [&] { SumSquares(memory, sum); });
      const double together_s = SecondsFor(kLeastSeconds, [&] { model.Run(many); });
      const double prompt_s = Seconds([&] { model.Run(prompt); });
      const double product_s =
          SecondsFor(prompt_s, [&] { Gemm(a, Transpose::kNo, a, Transpose::kYes, c); });
      const double bandwidth = static_cast<double>(numel) * 4 / read_s;
      const double rate = 2.0 * kSide * kSide * kSide / product_s;
      const double least_s = std::max(kSequences * token_flops / rate, bytes / bandwidth);
      all.decode_s.push_back(alone_s);
      all.of_reading.push_back(bytes / alone_s / bandwidth);
      all.bandwidth.push_back(bandwidth);
      all.prompt_s.push_back(prompt_s);
      all.of_products.push_back(flops / prompt_s / rate);
      all.rate.push_back(rate);
      all.together.push_back(kSequences * alone_s / together_s);
      all.possible.push_back(kSequences * alone_s / least_s);
    }
    fmt::print(
        "{:5} decode {:6.1f} tokens/s: {:3.0f} % of reading at {:.1f} GB/s; prompt {:6.0f} "
        "tokens/s: "
        "{:3.0f} % of products at {:.0f} GFLOP/s; {} sequences: {:.1f} times one, of {:.1f} within "
        "these limits\n",
        Name(format), 1 / Median(all.decode_s), 100 * Median(all.of_reading),
        Median(all.bandwidth) / 1e9, kPrompt / Median(all.prompt_s), 100 * Median(all.of_products),
        Median(all.rate) / 1e9, kSequences, Median(all.together), Median(all.possible));
  }
}

}  // namespace
}  // namespace trimtab

int main(int argc, char** argv) {
  trimtab::Run(argc > 1 ? argv[1] : "gpt2-124m", argc > 2 ? std::atoi(argv[2]) : 2,
               argc > 3 ? std::atoi(argv[3]) : 5);
  return 0;
}
