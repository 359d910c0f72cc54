// What rank 0 and the first rank of another replica tell each other, as bytes. Both ends are the
// same program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/infer/scheduler/handover.h"

namespace trimtab {

/// To a replica: what it is to know before its next step, which it then takes. Ids are as rank 0
/// knows them.
struct ReplicaOrders {
  struct Added {
    RequestId id = 0;
    GenerationRequest request{};
  };
  struct Moved {
    RequestId id = 0;
    TransferredSequence sequence{};
  };
  std::vector<Added> added{};
  std::vector<Moved> moved{};
  std::vector<RequestId> released{};  // that it has handed over, and whose blocks it may free
  std::vector<RequestId> aborted{};
};

/// From it, when it is ready and then after every step, likewise.
struct ReplicaReport {
  EngineMetrics metrics{};
  bool has_work = false;  // without further orders
  std::vector<RequestUpdate> updates{};
  std::vector<TransferredSequence> ready{};  // to be gone on with by others
  std::vector<PinnedBlocks> copied{};        // of others
  ExitCode code = ExitCode::kOk;  // otherwise it has come to its end, and `failure` says why
  std::string failure{};
};

std::string Pack(const ReplicaOrders& orders);
std::string Pack(const ReplicaReport& report);
ReplicaOrders UnpackOrders(std::string_view bytes);
ReplicaReport UnpackReport(std::string_view bytes);

}  // namespace trimtab
