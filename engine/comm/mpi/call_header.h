// CallHeader: a call as a rank shows it to the other ranks of the group.
#pragma once

#include <cstdint>

#include "engine/comm/comm_call.h"

namespace trimtab {

struct CallHeader {
  int32_t group;
  int32_t size;
  int32_t rank;
  int32_t kind;
  int32_t dtype;
  int32_t op;
  int32_t peer;
  int32_t finished;  // 1: no call, the rank's run is over
  int64_t count;

  CommCall Call() const {
    return {.kind = static_cast<CollectiveKind>(kind),
            .dtype = static_cast<DType>(dtype),
            .count = count,
            .op = static_cast<ReduceOp>(op),
            .peer = peer};
  }
};

inline CallHeader MakeCallHeader(GroupKind group, int size, int rank, const CommCall& call) {
  return {.group = static_cast<int32_t>(group),
          .size = size,
          .rank = rank,
          .kind = static_cast<int32_t>(call.kind),
          .dtype = static_cast<int32_t>(call.dtype),
          .op = static_cast<int32_t>(call.op),
          .peer = call.peer,
          .finished = 0,
          .count = call.count};
}

}  // namespace trimtab
