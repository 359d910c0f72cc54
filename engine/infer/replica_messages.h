// What rank 0 and the first rank of another replica tell each other, as bytes. Both ends are the
// same program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/infer/engine.h"

namespace trimtab {

/// To a replica: what it is to know before its next step, which it then takes.
struct ReplicaOrders {
  struct Added {
    RequestId id = 0;  // as rank 0 knows it
    GenerationRequest request{};
  };
  std::vector<RequestId> aborted{};  // likewise
  std::vector<Added> added{};
};

/// From it, when it is ready and then after every step.
struct ReplicaReport {
  EngineMetrics metrics{};
  std::vector<RequestUpdate> updates{};  // with the ids of rank 0
  ExitCode code = ExitCode::kOk;         // otherwise it has come to its end, and `failure` says why
  std::string failure{};
};

std::string Pack(const ReplicaOrders& orders);
std::string Pack(const ReplicaReport& report);
ReplicaOrders UnpackOrders(std::string_view bytes);
ReplicaReport UnpackReport(std::string_view bytes);

}  // namespace trimtab
