// SoftwareStack: what a training framework does otherwise than our engine, as data.
//
// A stack is a transformation of what our engine reports about a step: it prices the same ops and
// messages in another way. It never says what a step consists of. The default one is our engine
// itself, and changes nothing.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cost_model/hardware/hardware_profile.h"

namespace trimtab {

/// How attention is computed.
enum class AttentionKernel {
  kCudnn,    // in one kernel, the fastest there is for the GPU
  kFlash2,   // FlashAttention-2 (Dao, arXiv:2307.08691)
  kUnfused,  // products, and passes over the whole square of scores in memory
};
/// "cudnn", "flash2", "unfused".
std::string_view Name(AttentionKernel kernel);

/// A key of layouts of which a framework does not have all values, and those that it has: as a
/// layout prints them, or of recompute plans their beginnings.
struct StackOption {
  std::string key;
  std::vector<std::string> values;

  bool operator==(const StackOption&) const = default;
};

struct SoftwareStack {
  std::string name = "trimtab";
  std::string description = "our own engine";
  /// What a framework is called in published tables that means this stack.
  std::vector<std::string> frameworks{};
  /// What frameworks are built on: means this stack where no framework that is known is named.
  std::vector<std::string> platforms{};
  /// What limits the layouts that it runs.
  std::vector<StackOption> options{};
  bool usual = false;  // of no framework in particular, for those that nobody knows
  double year = 0;     // of the release that the numbers are of, 2024.5 = mid 2024; 0 = no matter

  AttentionKernel attention_kernel = AttentionKernel::kCudnn;
  bool fused_ops = true;       // what our ops do beside their own work; else in ops of their own
  bool fp32_gradients = true;  // that are added up and sent; else bf16
  bool overlap_grad_reduce = true;
  bool overlap_param_gather = true;
  bool fp8_layers = false;  // products of layers in fp8, where the run that is recorded has 16 bits
  bool compiled = true;     // small ops are fused, by hand or a compiler (torch.compile)
  bool blocking_launches = false;  // the host waits for each op: CUDA_LAUNCH_BLOCKING=1
  bool tokens_once_per_node =
      false;                        // that several experts of a node are for; else a copy for each
  bool switch_reduction = true;     // all-reduces are left to the link's switches, if these can
  bool shards_at_step_end = false;  // weights stay whole between micro batches, if there are many
  bool scatters_between_stages =
      false;  // of what tensor-parallel ranks have alike, each sends a part
  bool keeps_16_bit_gradients = false;  // beside those in fp32 that they are added up in
  bool fp8_weights = false;   // there is no 16-bit copy of the weights that fp8 multiplies
  bool whole_logits = false;  // tensor-parallel ranks gather them for the loss

  Quantity compute{1};           // speed of products, against the profile's
  Quantity fp8_compute{1};       // the same of products in fp8, on top
  Quantity compute_per_year{0};  // by how much a release a year later is faster, relative
  Quantity attention{1};         // speed of attention, against the profile's
  Quantity memory_traffic{1};    // bytes that other ops move, against ours
  Quantity loss_bytes{0};        // that a loss moves for each logit, beyond ours
  Quantity host_layer_s{0};      // of the host, to launch a forward pass of one layer
  Quantity host_tp_growth{0};    // by how much more with each doubling of tp, relative
  Quantity expert_launch_s{0};   // of the host, to launch a product of one expert of a group
  Quantity tp_wait_s{0};         // of a tensor-parallel message for each further rank: who is late
  Quantity tp_exposed{1};        // share of tensor-parallel messages that nothing hides
  Quantity ep_exposed{1};        // the same of tokens on their way to experts and back
  Quantity dp_exposed{0};        // the same of data-parallel ones that our engine hides
  Quantity network{1};           // speed of messages between nodes, against the profile's
  Quantity dispatch_s{0};        // of a layer's tokens to experts: the host waits for their counts
  Quantity chunk_s{0};       // the same for each expert: of the host, to move its chunk of tokens
  Quantity slowdown{0};      // of ops, in seconds per second of message beside them
  Quantity recompute{1};     // share of a recomputed layer that does run again
  Quantity step_s{0};        // of a step beyond its ops and messages
  Quantity memory_bytes{0};  // of a GPU beyond tensors: context, libraries, slack
  Quantity activations{1};   // bytes kept for the backward pass, against ours
  Quantity expert_activations{1};  // the same of models with experts, on top
  Quantity logit_bytes{0};         // of each logit of a micro batch, beyond ours
  Quantity kept_bytes{0};  // of each token in a layer that runs again, beyond the layer's input

  bool operator==(const SoftwareStack&) const = default;
};

/// A number of a stack: its key in JSON, what it is, and its member.
struct StackNumber {
  const char* key;
  Quantity SoftwareStack::*member;
};
/// All of them, in the order of the struct.
const std::vector<StackNumber>& StackNumbers();

/// Strict JSON. `where` prefixes error messages. Throws InputError.
SoftwareStack SoftwareStackFromJson(const nlohmann::json& json, const std::string& where);
nlohmann::json ToJson(const SoftwareStack& stack);

/// The stacks inside the program, our own first.
const std::vector<SoftwareStack>& BuiltinStacks();
/// A built-in stack by name, or a file. Throws UsageError for a name that is not there, InputError.
SoftwareStack LoadSoftwareStack(const std::string& name_or_path);
/// The stack of a framework as a published table names it, however it is spelt, in the year of the
/// release. Of several names in it the first one counts, of those the longest, then the stack of
/// the nearest year, the earlier of two that are as near. One that nobody knows gets what was usual
/// in that year.
const SoftwareStack& StackOfFramework(const std::string& framework, double year);
/// `stack` as a release of `year` would be.
SoftwareStack InYear(SoftwareStack stack, double year);

}  // namespace trimtab
