#include "engine/schedule/action.h"

#include <array>

namespace trimtab {

std::string_view Name(ActionKind kind) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "forward",         "backward",        "backward_input", "backward_weight",
      "send_activation", "recv_activation", "send_gradient",  "recv_gradient"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace trimtab
