#include "engine/device/cuda/nvtx_recorder.h"

#include <fmt/format.h>

#include <nvtx3/nvToolsExt.h>

#include <string>

namespace trimtab {
namespace {

std::string Describe(const CommRecord& message) {
  return fmt::format("{} {} {} bytes", Name(message.kind), Name(message.group), message.bytes);
}

}  // namespace

void NvtxRecorder::BeginOp(const OpRecord& op) {
  std::string name(Name(op.kind));
  char separator = ' ';
  for (const int64_t dim : op.dims) {
    if (dim == 0) break;
    name += separator;
    name += std::to_string(dim);
    separator = 'x';
  }
  name += ' ';
  name += Name(op.dtype);
  nvtxRangePushA(name.c_str());
}

void NvtxRecorder::BeginComm(const CommRecord& message) {
  nvtxRangePushA(Describe(message).c_str());
}

void NvtxRecorder::BeginWait(const CommRecord& message) {
  nvtxRangePushA(("wait " + Describe(message)).c_str());
}

void NvtxRecorder::End() { nvtxRangePop(); }

}  // namespace trimtab
