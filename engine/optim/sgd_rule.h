// SGD with momentum (torch.optim.SGD), and weight decay decoupled from it as AdamW's is (SGDW in
// arXiv:1711.05101).
#pragma once

#include <span>

#include "engine/optim/update_rule.h"

namespace trimtab {

class SgdRule final : public UpdateRule {
 public:
  explicit SgdRule(const OptimizerConfig& config)
      : momentum_(static_cast<float>(config.momentum)), nesterov_(config.nesterov) {}

  void Update(const UpdateInputs& inputs, std::span<const UpdateRun> runs) override;

 private:
  float momentum_;
  bool nesterov_;
};

}  // namespace trimtab
