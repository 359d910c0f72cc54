// Serving that others measured and published, in the format of the table that collects it: a JSON
// list of rows, each a model, hardware, a load and what was measured. What a source does not tell
// is null. Strict: what the table's format does not have is refused.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/config/model/model_config.h"

namespace trimtab {

enum class ServingKind { kServed, kSaturated, kStaticBatch };
/// "served", "saturated", "static_batch".
std::string_view Name(ServingKind kind);

struct PublishedServing {
  std::string id{};
  std::string source{};
  ServingKind kind = ServingKind::kServed;
  std::string engine{};
  std::string engine_version{};  // empty = not told
  std::string model_name{};
  ModelConfig model{};
  std::string unsupported{};  // what the model has and the engine does not serve; empty = nothing
  std::string gpu{};
  int64_t gpus = 1;
  int64_t tp = 1;
  int64_t pp = 1;
  int64_t ep = 1;
  int64_t dp = 1;
  std::string weight_precision{};
  std::string kv_precision{};  // empty = not told
  bool only_experts = false;   // are in weight_precision, as far as is told
  bool wide_latent = false;    // likewise: projections of latent attention are in 16 bits
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  double mean_length = 1;   // of the lengths, against these two
  int64_t batch = 0;        // kStaticBatch
  int64_t concurrency = 0;  // kServed
  int64_t requests = 0;     // kSaturated, all at once; 0 = not told
  double tpot_s = 0;        // what follows: 0 = not told
  double ttft_s = 0;
  double output_tokens_per_s = 0;  // of the whole instance
  std::string notes{};

  /// Rows of one kind of run, which differ in lengths and load: model, engine, GPU, GPUs.
  std::string Group() const;
};

/// Whether a list of published rows is of serving: its first row has a "kind".
bool IsPublishedServing(const nlohmann::json& rows);

/// Throws InputError naming row and path of what is wrong.
std::vector<PublishedServing> ReadPublishedServing(const nlohmann::json& rows,
                                                   const std::string& path);

}  // namespace trimtab
