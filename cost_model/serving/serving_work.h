// What a step of serving does on one rank: recorded from the engine's own pass on the meta device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/config/model/model_config.h"
#include "engine/device/record.h"

namespace trimtab {

/// What weights are multiplied in, elsewhere too: 16 bits, or so few that scales stand beside them.
enum class ServingPrecision { k16Bit, kFp8, kNvFp4, kMxFp4, kInt4, kInt8, k32Bit };
/// "bf16", "fp8", "nvfp4", "mxfp4", "int4", "int8", "fp32".
std::string_view Name(ServingPrecision precision);
/// Bytes of a weight with its share of a scale: nvfp4 has one byte for 16 values, mxfp4 one for 32,
/// int4 two for 32.
double BytesPerWeight(ServingPrecision precision);

/// One instance of a model: which GPUs hold what.
struct ServingLayout {
  int64_t tp = 1;
  int64_t pp = 1;
  int64_t dp = 1;  // groups of tp ranks that attend to requests of their own and share the experts
  // How our engine shares rows and experts among the tp ranks (ParallelConfig). Without sequence
  // parallelism each rank has all rows, and a slice of every expert, as in other engines.
  bool sequence_parallel = false;
  int64_t ep = 1;
  int64_t etp = 1;
  ServingPrecision weights = ServingPrecision::k16Bit;
  bool only_experts = false;  // are in `weights`, all else in 16 bits
  bool wide_latent = false;   // the projections of latent attention, down and up, are in 16 bits
  // With latent attention: keys and values of prompts are made of the compressed ones again, which
  // takes fewer operations than to attend to those (DeepSeek-V2, arXiv:2405.04434). Ours attends.
  bool expands_prompts = false;
  bool packs_head = false;  // the head is in `weights` too
  double kv_bytes = 2;      // of a key or value, with its share of a scale

  int64_t gpus() const { return tp * pp * dp; }
  /// Steps are filled up to a multiple of so many rows, and of as many outputs.
  int64_t row_multiple() const { return sequence_parallel ? tp : 1; }
};

/// The rows of one step of one data-parallel rank: a token of each of `sequences` with `context`
/// tokens behind it, and `prompts` pieces of `prompt_tokens` that begin at `prompt_position`, of
/// which the last token's logits are asked.
struct ServingStep {
  int64_t sequences = 0;
  int64_t context = 0;
  int64_t prompts = 0;
  int64_t prompt_tokens = 0;
  int64_t prompt_position = 0;

  int64_t tokens() const { return sequences + prompts * prompt_tokens; }
};

/// Products of one shape: `count` of them.
struct ServingProduct {
  enum class Kind { kDense, kExperts, kHead };
  Kind kind = Kind::kDense;
  bool low_precision = false;  // weights as ServingLayout says, else 16 bits
  double weights = 0;          // elements of this rank; of experts all that it holds
  double flops = 0;
  double count = 0;
};

/// Messages of one kind and size, which is that of the full buffer.
struct ServingMessage {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int64_t ranks = 1;
  double bytes = 0;
  double count = 0;
};

struct ServingWork {
  std::vector<ServingProduct> products{};
  std::vector<ServingMessage> messages{};
  double kv_values = 0;        // keys and values that attention reads, elements
  double attention_flops = 0;  // of rows of prompts
  double decode_flops = 0;     // of other rows, where all heads share keys: else reading them binds
  double other_bytes = 0;      // that all other ops move, with 16-bit activations
  double ops = 0;              // that our engine launches
  double kernels = 0;          // that engines launch which fuse small ops, but those for experts
  double layers = 0;
  double expert_layers = 0;
  double all_tokens = 0;  // of all data-parallel ranks, whom the experts serve
  double sequences = 0;   // whose next token is chosen, of all data-parallel ranks
  double prompt_tokens = 0;
  double routed_share = 0;  // k / E: of the experts, those that a token goes to
};

/// What a rank of the fullest pipeline stage holds.
struct ServingFootprint {
  double weight_bytes = 0;
  double kv_bytes_per_token = 0;
  bool windows = false;  // some layers see only the last tokens

  bool operator==(const ServingFootprint&) const = default;
};

/// Records steps of one model in one layout. With a pipeline a step is that of a micro batch
/// through all its stages.
class ServingRecorder {
 public:
  /// Throws InfeasibleError where the model cannot be cut so.
  ServingRecorder(const ModelConfig& model, const ServingLayout& layout);
  ~ServingRecorder();
  ServingRecorder(const ServingRecorder&) = delete;
  ServingRecorder& operator=(const ServingRecorder&) = delete;

  ServingWork Record(const ServingStep& step);
  const ServingFootprint& footprint() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trimtab
