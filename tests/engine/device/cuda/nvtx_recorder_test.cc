// Ranges as a profiler sees them: the test is linked in as the tool that NVTX reports to.
#include "engine/device/cuda/nvtx_recorder.h"

#include <gtest/gtest.h>

#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

namespace trimtab {
namespace {

std::vector<std::string>& Events() {
  static std::vector<std::string> events;
  return events;
}

int Push(const char* name) {
  Events().push_back(name);
  return 0;
}
int Pop() {
  Events().push_back("end");
  return 0;
}

int InitializeTool(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(Push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(Pop);
  return 1;
}

TEST(NvtxRecorder, NamesOpsAndMessages) {
  InitializeInjectionNvtx2_fnptr = InitializeTool;  // asked for at the first range
  NvtxRecorder recorder;
  recorder.BeginOp({.kind = OpKind::kGemm, .dtype = DType::kBf16, .dims = {4096, 12288, 4096}});
  recorder.End();
  const CommRecord message = {
      .kind = CollectiveKind::kAllReduce, .group = GroupKind::kData, .ranks = 8, .bytes = 1048576};
  recorder.BeginComm(message);
  recorder.End();
  recorder.BeginWait(message);
  recorder.End();
  EXPECT_EQ(Events(), (std::vector<std::string>{"gemm 4096x12288x4096 bf16", "end",
                                                "all_reduce dp 1048576 bytes", "end",
                                                "wait all_reduce dp 1048576 bytes", "end"}));
}

}  // namespace
}  // namespace trimtab
