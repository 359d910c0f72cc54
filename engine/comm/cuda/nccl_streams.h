// Which streams the calls of a NCCL group may use.
#pragma once

#include <cstdint>

#include "engine/comm/communicator.h"
#include "engine/comm/nccl_versions.h"

namespace trimtab {

/// Where the asynchronous calls of a group go; the others go to the device's stream.
enum class NcclStreamKind {
  kDevice,  // to the device's stream too: all calls of all groups are in its order
  kShared,  // to one that the groups of a rank share
  kOwn,     // to the group's own: they stand behind no call of another group
};

/// Those of a tensor-parallel group are waited for within a layer. A NCCL that does not keep the
/// order of launches gets everything in one stream.
constexpr NcclStreamKind AsyncStreamOf(GroupKind group, int64_t nccl_version) {
  if (!NcclKeepsLaunchOrder(nccl_version)) return NcclStreamKind::kDevice;
  return group == GroupKind::kTensor ? NcclStreamKind::kOwn : NcclStreamKind::kShared;
}

/// Whether the ranks of a group send to their neighbours, of pipeline stages or on the ring of the
/// context.
constexpr bool SendsMessages(GroupKind group) {
  return group == GroupKind::kPipeline || group == GroupKind::kContext;
}

/// Whether a NCCL of this version can run a group of `size`: messages to neighbours wait for one
/// another in streams of their own, which one stream cannot stand for.
constexpr bool NcclCanRun(GroupKind group, int size, int64_t nccl_version) {
  return size == 1 || !SendsMessages(group) || NcclKeepsLaunchOrder(nccl_version);
}

}  // namespace trimtab
