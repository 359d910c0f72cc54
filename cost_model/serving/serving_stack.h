// What engines that serve, and the GPUs under them, reach: numbers with their origin, as data.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cost_model/hardware/hardware_profile.h"

namespace trimtab {

/// Shares of what a GPU's profile says, for GPUs of one generation.
struct ServingGpu {
  std::string generation{};     // as profiles name it
  Quantity weight_bandwidth{};  // of the memory's, reading the weights of a product
  Quantity kv_bandwidth{};      // likewise, keys and values
  Quantity other_bandwidth{};   // likewise, in all other ops
  Quantity weight_only{};       // speed with weights that are widened before they multiply
  Quantity compute_16{};        // of the peak, products in 16 bits
  Quantity compute_8{};         // in fp8
  Quantity compute_4{};         // in fp4
  Quantity attention{};         // of the 16-bit peak, attention of prompts
  Quantity link{};              // of the link, all-reduces
  Quantity message_s{};         // of an all-reduce beside its bytes

  // Experts are multiplied by kernels of their own, which differ by precision. Bandwidth and
  // compute are shares as above, overheads factors of the engine's number for 16 bits.
  Quantity expert_bandwidth{};
  Quantity expert_bandwidth_widened{};  // weights that are widened before they multiply
  Quantity expert_compute{};            // of the peak in their precision
  Quantity expert_compute_4{};
  Quantity expert_compute_widened{};
  Quantity expert_overhead_8{};
  Quantity expert_overhead_4{};
  Quantity expert_overhead_widened{};

  bool operator==(const ServingGpu&) const = default;
};

/// How an engine brings prompts and running sequences together.
enum class PromptPolicy {
  kChunked,  // running sequences first, and prompts cut to what is left of a step
  kWhole,    // whole prompts beside running sequences
  kAlone,    // steps of prompts alone, while running sequences wait
};
/// "chunked", "whole", "alone".
std::string_view Name(PromptPolicy policy);

/// One engine, or a line of its releases.
struct ServingEngine {
  std::string name{};
  std::string engine{};                 // as published tables name it
  std::vector<std::string> versions{};  // beginnings; empty: of all others
  std::string description{};
  PromptPolicy policy = PromptPolicy::kChunked;
  int64_t tokens_per_step = 0;
  int64_t max_sequences = 0;
  bool reserves_output = false;   // a request is let in when all of its answer has room
  bool widens_weights = false;    // of fewer than 16 bits before they multiply, whatever the GPU
  bool share_of_free = false;     // memory_share is of what is free beside weights, not of all
  bool launches_each_op = false;  // as our engine does; others fuse (ServingWork::kernels)

  Quantity memory_share{};      // of a GPU's memory that the engine takes
  Quantity memory_bytes{};      // of these, for all but weights and cache
  Quantity windowed_room{};     // share of the room for a cache where some layers have windows
  Quantity gap_s{};             // between kernels: launches within a graph, and their ramps
  Quantity expert_layer_s{};    // of a layer with experts beyond its ops
  Quantity quantise_s{};        // of a product that multiplies in fp4
  Quantity host_s{};            // of a step
  Quantity sequence_s{};        // of each sequence in it: sampling, text, its stream
  Quantity prompt_layer_s{};    // of a layer in a step with prompts, at least: no graph
  Quantity compute{};           // speed of products against the GPU's numbers
  Quantity bandwidth{};         // likewise, reading weights
  Quantity link{};              // likewise, of all-reduces
  Quantity expert_bandwidth{};  // likewise, reading the weights of experts
  Quantity expert_compute{};    // likewise, products of experts

  bool operator==(const ServingEngine&) const = default;
};

/// A number of a GPU or an engine, what is expected of it without measurements, and what it can be.
template <typename T>
struct ServingNumber {
  const char* key;
  Quantity T::*member;
  double prior;
  double spread;  // standard deviation of its logarithm; 0 = it is not fitted
  double least;
  double most;
};
const std::vector<ServingNumber<ServingGpu>>& ServingGpuNumbers();
const std::vector<ServingNumber<ServingEngine>>& ServingEngineNumbers();

/// Strict JSON; numbers that are not there are at their priors. Throws InputError.
ServingGpu ServingGpuFromJson(const nlohmann::json& json, const std::string& where);
ServingEngine ServingEngineFromJson(const nlohmann::json& json, const std::string& where);

/// Those inside the program.
const std::vector<ServingGpu>& BuiltinServingGpus();
const std::vector<ServingEngine>& BuiltinServingEngines();

/// Of the generation; one at its priors where none is known.
ServingGpu ServingGpuOf(const std::string& generation);
/// The line of releases of `engine` that has `version`, which is empty where it is not told;
/// nullptr for an engine that is not known.
const ServingEngine* ServingEngineOf(const std::string& engine, const std::string& version);

}  // namespace trimtab
