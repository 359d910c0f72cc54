// The optimizer of a run: $.optimizer of RUN.json.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trimtab {

/// Update rules of parameters: engine/optim has each of them.
enum class OptimizerKind : uint8_t { kAdamW, kSgd, kMuon };
inline constexpr std::array kOptimizerKinds = {OptimizerKind::kAdamW, OptimizerKind::kSgd,
                                               OptimizerKind::kMuon};
/// "adamw", "sgd", "muon".
std::string_view Name(OptimizerKind kind);

/// Parameters whose update differs: those with a name that one of the patterns matches (see
/// MatchesPattern), unless an earlier group has them.
struct ParameterGroup {
  std::vector<std::string> match{};
  double learning_rate_factor = 1;     // of the scheduled learning rate
  std::optional<bool> weight_decay{};  // none: as of parameters in no group

  bool operator==(const ParameterGroup&) const = default;
};

/// Update rule, global-norm clipping, warm-up + cosine. Weights decay in matrices and tables, not
/// in vectors (norms, biases), unless a group says otherwise.
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double learning_rate = 6e-4;
  double min_learning_rate = 6e-5;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double momentum = 0.95;  // of sgd and muon
  bool nesterov = true;    // likewise
  double weight_decay = 0.1;
  double clip_grad = 1.0;  // global norm; 0 turns clipping off
  int64_t warmup_steps = 10;
  int64_t decay_steps = 0;  // steps until min_learning_rate; 0 = the length of the run
  std::vector<ParameterGroup> groups{};

  /// Sets the peak rate; the minimum keeps its share of it, if there was a peak.
  void ScaleTo(double rate);
  bool operator==(const OptimizerConfig&) const = default;
};

/// The optimizer called `name`. Throws UsageError naming the nearest one.
OptimizerKind ParseOptimizerKind(const std::string& name);

/// Strict JSON; `where` prefixes messages.
OptimizerConfig OptimizerConfigFromJson(const nlohmann::json& json, const std::string& where);
nlohmann::json ToJson(const OptimizerConfig& optimizer);

}  // namespace trimtab
