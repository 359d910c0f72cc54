// AdamW (Loshchilov & Hutter, arXiv:1711.05101): two moments of each element.
#pragma once

#include <span>
#include <vector>

#include "engine/ops/optimizer/adamw.h"
#include "engine/optim/update_rule.h"

namespace trimtab {

class AdamWRule final : public UpdateRule {
 public:
  explicit AdamWRule(const OptimizerConfig& config);

  static std::vector<StateSlot> Slots(const TrainingTypes& types);
  void Update(const UpdateInputs& inputs, std::span<const UpdateRun> runs) override;

 private:
  AdamWConfig config_;
};

}  // namespace trimtab
