// Megatron-LM: the options of its pretrain_gpt.py that ask for a run of ours.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/config/run/run_config.h"

namespace trimtab {

/// One option: its name, and what follows it.
struct MegatronOption {
  std::string name;                   // "--num-layers"
  std::vector<std::string> values{};  // none of a switch

  bool operator==(const MegatronOption&) const = default;
};

/// Options in the order they are added.
class MegatronOptions {
 public:
  void Add(std::string_view name) { options_.push_back({std::string(name)}); }
  void Add(std::string_view name, int64_t value);
  /// As short as reads back the same.
  void Add(std::string_view name, double value);
  void Add(std::string_view name, std::string_view value);
  void Add(std::string_view name, const char* value) { Add(name, std::string_view(value)); }
  void Add(MegatronOption option) { options_.push_back(std::move(option)); }
  /// Throws UsageError where Megatron-LM has no option for `what`.
  static void Require(bool expressible, std::string_view what);

  std::vector<MegatronOption> Take() { return std::move(options_); }

 private:
  std::vector<MegatronOption> options_;
};

/// Model, layout, precision, batch, optimizer and length of a legal run, for Megatron-LM as of core
/// 0.14 (megatron/training/arguments.py); data, checkpoints and logs are the user's. Throws
/// UsageError naming what of the run Megatron-LM has no option for: nothing is left out in silence.
std::vector<MegatronOption> ToMegatron(const RunConfig& run);

/// The value of CUDA_DEVICE_MAX_CONNECTIONS that Megatron-LM asks for; 0 if it does not matter.
/// Tensor- and context-parallel messages keep their place among ops only with one connection;
/// sharded weights and gradients need several to run beside them.
int64_t MegatronConnections(const ParallelConfig& layout);

/// Parts of ToMegatron: options of the model, of its experts, and of the layout with its precision.
void AddMegatronModel(const RunConfig& run, MegatronOptions& options);
void AddMegatronExperts(const RunConfig& run, MegatronOptions& options);
void AddMegatronLayout(const RunConfig& run, MegatronOptions& options);

/// An option a line, values behind it, quoted where a shell or xargs needs it.
std::string ToText(const std::vector<MegatronOption>& options);

}  // namespace trimtab
