// The attention graphs, put to cuDNN's heuristics for GPUs that are only described: needs cuDNN,
// but neither a GPU nor a driver. What the kernels compute only a GPU can tell.
#include <gtest/gtest.h>

#include "engine/ops/attention/attention.h"

#if __has_include(<cudnn_graph.h>)

#include <dlfcn.h>

#include <cstdlib>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ops/cuda/attention/attention_graph.h"

namespace trimtab {
namespace {

struct Gpu {
  const char* name;
  int version;  // compute capability, 900 for 9.0
  int multiprocessors;
  int shared_bytes;  // what a block may ask for
  int64_t memory;
  int64_t l2_bytes;
};

constexpr Gpu kH200 = {"NVIDIA H200", 900, 132, 232448, 150'000'000'000, 62'914'560};
constexpr Gpu kH100 = {"NVIDIA H100 80GB HBM3", 900, 132, 232448, 85'000'000'000, 52'428'800};
constexpr Gpu kA100 = {"NVIDIA A100-SXM4-80GB", 800, 108, 166912, 85'000'000'000, 41'943'040};

CudnnDescriptor Describe(const Gpu& gpu) {
  CudnnDescriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, gpu.name);
  // The keys are those that cuDNN writes for a device that is there.
  device.Set(
      CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
      fmt::format(
          R"({{"version":1,"cudnn_version":{},"json_version":"1.0","deviceName":"{}",)"
          R"("deviceVer":{},"driverVer":13000,"cudaDeviceId":0,"pciDeviceId":0,)"
          R"("multiProcessorCount":{},"warpSize":32,"maxGridSize":[2147483647,65535,65535],)"
          R"("maxBlockSize":[1024,1024,64],"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,)"
          R"("maxCtasPerSM":32,"regsPerBlock":65536,"maxRegistersPerSM":65536,)"
          R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":{},)"
          R"("reservedSharedMemoryPerBlock":1024,"totalGlobalMem":{},"l2CacheSize":{},)"
          R"("smClockRateKHz":1980000,"memClockRateKHz":3201000,"isTccDriver":0,)"
          R"("supportCoopLaunch":1}})",
          CUDNN_VERSION, gpu.name, gpu.version, gpu.multiprocessors, gpu.shared_bytes, gpu.memory,
          gpu.l2_bytes));
  device.Finalize();
  return device;
}

// Sequences at and past a multiple of the kernels' tiles; plain and grouped heads.
std::vector<AttentionShape> Shapes() {
  std::vector<AttentionShape> shapes;
  for (const int64_t sequence : {1000, 1024, 4096}) {
    shapes.push_back({{4, sequence}, 12, 12, 64});   // GPT-2
    shapes.push_back({{2, sequence}, 32, 32, 128});  // Llama 2 7B
    shapes.push_back({{1, sequence}, 32, 8, 128});   // Llama 3 8B
    shapes.push_back({{2, sequence}, 32, 8, 64});
  }
  return shapes;
}

std::vector<CudnnEngine> Engines(const Gpu& gpu, const AttentionShape& shape,
                                 const AttentionPart& part, bool backward, cudnnDataType_t type) {
  const CudnnDescriptor device = Describe(gpu);
  const AttentionGraph graph = backward ? AttentionBackwardGraph(shape, part, type)
                                        : AttentionForwardGraph(shape, part, type);
  const CudnnDescriptor operations = graph.graph.Finish(nullptr, "attention");
  std::vector<CudnnEngine> engines;
  for (const CudnnDescriptor& config : CudnnEngineConfigs(operations, {nullptr, &device}))
    engines.push_back(DescribeEngine(config));
  return engines;
}

class AttentionCudnnTest : public testing::Test {
 protected:
  // The library's own run-time calls want some driver, and the toolkit's stub is enough. It is
  // loaded first, under the name by which the library will ask for it.
  static void SetUpTestSuite() {
    const char* stub = std::getenv("TRIMTAB_DRIVER_STUB");
    stub_loaded_ = stub != nullptr && dlopen(stub, RTLD_NOW | RTLD_GLOBAL) != nullptr;
  }

  void SetUp() override {
    if (!CudnnUnavailable().empty()) GTEST_SKIP() << CudnnUnavailable();
    if (!stub_loaded_) GTEST_SKIP() << "the toolkit has no stub of the driver";
  }

 private:
  static inline bool stub_loaded_ = false;
};

TEST_F(AttentionCudnnTest, EveryShapeHasATensorCoreEngine) {
  for (const Gpu& gpu : {kH200, kH100, kA100}) {
    for (const AttentionShape& shape : Shapes()) {
      // The whole list once, and each type often enough.
      if (std::string_view(gpu.name) != kH200.name && shape.rows.sequence != 4096) continue;
      const cudnnDataType_t type =
          shape.rows.sequence == 1024 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
      for (const bool backward : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << gpu.name << ", b " << shape.rows.batch << ", T " << shape.rows.sequence
                     << ", heads " << shape.heads << "/" << shape.kv_heads << ", D "
                     << shape.head_size << (backward ? ", backward" : ", forward"));
        const auto engines =
            Engines(gpu, shape, {shape.rows.batch, shape.kv_heads}, backward, type);
        ASSERT_FALSE(engines.empty());
        EXPECT_TRUE(engines.front().tensor_cores);
      }
    }
  }
}

// Without a driver a plan gets as far as the kernel that cuDNN writes and compiles for the graph:
// what fails is to load it.
TEST_F(AttentionCudnnTest, KernelsOfThePlansCompile) {
  const AttentionShape shape = {{2, 4096}, 32, 8, 128};
  const CudnnDescriptor device = Describe(kH200);
  const CudnnTarget target = {nullptr, &device};
  for (const bool backward : {false, true}) {
    const AttentionGraph graph = backward
                                     ? AttentionBackwardGraph(shape, {2, 8}, CUDNN_DATA_BFLOAT16)
                                     : AttentionForwardGraph(shape, {2, 8}, CUDNN_DATA_BFLOAT16);
    const CudnnDescriptor operations = graph.graph.Finish(nullptr, "attention");
    const auto configs = CudnnEngineConfigs(operations, target);
    ASSERT_FALSE(configs.empty());
    try {
      CudnnPlan(configs.front(), target);
      FAIL() << "a kernel was loaded with no driver to load it";
    } catch (const CudnnError& error) {
      EXPECT_EQ(error.status, CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER) << error.what();
      EXPECT_NE(std::string(error.what()).find("cuLibraryLoadData"), std::string::npos)
          << error.what();
    }
  }
}

// Hopper's first choice is a kernel of its own (wgmma), the second the one that Ampere gets (mma).
TEST_F(AttentionCudnnTest, HopperGetsItsOwnKernels) {
  const AttentionShape shape = {{2, 4096}, 32, 32, 128};
  for (const bool backward : {false, true}) {
    const auto hopper = Engines(kH200, shape, {2, 32}, backward, CUDNN_DATA_BFLOAT16);
    const auto ampere = Engines(kA100, shape, {2, 32}, backward, CUDNN_DATA_BFLOAT16);
    ASSERT_GE(hopper.size(), 2u);
    ASSERT_FALSE(ampere.empty());
    EXPECT_NE(hopper[0].index, ampere[0].index);
    EXPECT_EQ(hopper[1].index, ampere[0].index);
  }
}

TEST_F(AttentionCudnnTest, PartsOfACallHaveEngines) {
  const AttentionShape shape = {{2, 4096}, 32, 8, 128};
  for (const AttentionPart part : {AttentionPart{1, 8}, AttentionPart{1, 4}, AttentionPart{1, 1}}) {
    for (const bool backward : {false, true})
      EXPECT_FALSE(Engines(kH200, shape, part, backward, CUDNN_DATA_BFLOAT16).empty());
  }
}

// The fused engines take 16-bit types only; heuristics that offered one here would offer anything.
TEST_F(AttentionCudnnTest, NoEngineTakesFp32) {
  const AttentionShape shape = {{2, 1024}, 12, 12, 64};
  EXPECT_TRUE(Engines(kH200, shape, {2, 12}, true, CUDNN_DATA_FLOAT).empty());
}

TEST_F(AttentionCudnnTest, GraphsHaveTheOperationsThatTheEnginesKnow) {
  const auto operations = [](const AttentionShape& s, bool backward) {
    const AttentionPart all = {s.rows.batch, s.kv_heads};
    return backward ? AttentionBackwardGraph(s, all, CUDNN_DATA_HALF).graph.operations()
                    : AttentionForwardGraph(s, all, CUDNN_DATA_HALF).graph.operations();
  };
  EXPECT_EQ(operations({{1, 64}, 4, 4, 64}, false), 14);
  EXPECT_EQ(operations({{1, 64}, 4, 2, 64}, false), 14);
  EXPECT_EQ(operations({{1, 64}, 4, 4, 64}, true), 22);
  EXPECT_EQ(operations({{1, 64}, 4, 2, 64}, true), 24);  // two more sums, over the group
}

TEST_F(AttentionCudnnTest, ErrorsNameTheCallAndThePurpose) {
  try {
    CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor without dimensions");
    tensor.Finalize();
    FAIL() << "an unfinished tensor was accepted";
  } catch (const CudnnError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("a tensor without dimensions"), std::string::npos) << message;
    EXPECT_NE(message.find("finalize"), std::string::npos) << message;
    EXPECT_NE(message.find("CUDNN_STATUS_BAD_PARAM"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace trimtab

#else

TEST(AttentionCudnnTest, NeedsCudnn) { GTEST_SKIP() << "built without cuDNN"; }

#endif
