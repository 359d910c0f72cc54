// Ops and messages as named ranges, for NVIDIA's profilers.
#pragma once

#include "engine/device/record.h"

namespace trimtab {

/// Opens an NVTX range of the calling thread for every op ("gemm 4096x12288x4096 bf16") and every
/// message ("all_reduce dp 1048576 bytes") and every wait ("wait all_reduce dp 1048576 bytes"), and
/// closes it when the op has been submitted. A profiler that traces NVTX ties kernels to the range
/// they were submitted in. Without one, a range costs its name.
class NvtxRecorder final : public Recorder {
 public:
  void BeginOp(const OpRecord& op) override;
  void BeginComm(const CommRecord& message) override;
  void BeginWait(const CommRecord& message) override;
  void End() override;
};

}  // namespace trimtab
