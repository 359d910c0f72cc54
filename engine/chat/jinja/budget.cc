#include "engine/chat/jinja/budget.h"

#include <fmt/core.h>

namespace trimtab::jinja {
namespace {

constexpr uint64_t kBudget = uint64_t{1} << 31;
constexpr uint64_t kStepCost = 100;
constexpr uint64_t kByteCost = 4;

thread_local Budget* t_budget = nullptr;

}  // namespace

Budget::Budget() : left_(kBudget), outer_(t_budget) { t_budget = this; }
Budget::~Budget() { t_budget = outer_; }

void Spend(uint64_t cost) {
  if (t_budget == nullptr) return;
  if (cost > t_budget->left_) throw Failure("the template does more work than is allowed");
  t_budget->left_ -= cost;
}

void SpendStep(uint64_t count) { Spend(count * kStepCost); }
void SpendBytes(size_t bytes) { Spend(bytes * kByteCost); }

DepthGuard::DepthGuard() {
  if (t_budget == nullptr) return;
  if (t_budget->depth_ >= kMaxRunDepth) throw Failure("the template is nested too deeply");
  ++t_budget->depth_;
}

DepthGuard::~DepthGuard() {
  if (t_budget != nullptr) --t_budget->depth_;
}

}  // namespace trimtab::jinja
