// Action: one thing a pipeline stage does in a training step.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace trimtab {

enum class ActionKind : uint8_t {
  kForward,
  kBackward,        // both parts below at once
  kBackwardInput,   // the gradient of the chunk's input
  kBackwardWeight,  // the gradients of its weights, once the input part has run
  kSendActivation,  // the result of Forward, to the chunk after this one
  kRecvActivation,  // the input of Forward, from the chunk before it
  kSendGradient,    // the result of Backward or BackwardInput, to the chunk before this one
  kRecvGradient,    // what Backward or BackwardInput starts from, from the chunk after it
};

/// "forward", "backward_input", "send_activation", ...
std::string_view Name(ActionKind kind);

constexpr bool IsCompute(ActionKind kind) { return kind <= ActionKind::kBackwardWeight; }
constexpr bool IsSend(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient;
}

/// Messages are submitted where they stand in the list and not waited for there: a receive is
/// waited for by the compute action that takes its data, a send after the next compute action, or
/// at the end of the list. Until then its data are kept.
struct Action {
  ActionKind kind{};
  int32_t chunk = 0;  // of the stage's own: 0 .. vp - 1
  int32_t micro_batch = 0;
  int32_t peer = -1;  // of a message: the other stage

  bool operator==(const Action&) const = default;
};

/// What one stage does in a step, in order.
using StageProgram = std::vector<Action>;

}  // namespace trimtab
