#include "engine/ops/cuda/attention/attention_cudnn.h"

#include <cuda_runtime.h>

#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "engine/device/cuda/check.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/ops/cuda/attention/attention_graph.h"
#include "engine/ops/cuda/cudnn/cudnn_limits.h"

namespace trimtab {
namespace {

// One run of a plan covers a part of the op: as much as the device's scratch has workspace for.
struct Plan {
  AttentionPart part;
  std::shared_ptr<const AttentionGraph> graph;
  std::shared_ptr<const CudnnDescriptor> operations;  // of the graph
  CudnnDescriptor config;
  CudnnDescriptor plan;
};

struct Entry {
  std::unique_ptr<const Plan> plan;
  std::string refusal;  // where there is none
};

// Capped, windowed and ALiBi scores are all refused; scales are no part of a plan.
using Key =
    std::tuple<AttentionPass, DType, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool>;

Key KeyOf(AttentionPass pass, const AttentionShape& s, DType dtype) {
  return {pass,       dtype,       s.rows.batch,   s.rows.sequence, s.heads,
          s.kv_heads, s.head_size, s.value_size(), s.scores.plain()};
}

std::string Describe(AttentionPass pass, const AttentionShape& s, DType dtype) {
  return fmt::format(
      "{} sequences of {} tokens, {} heads over {}, head size {}, {} of values, {}, {}",
      s.rows.batch, s.rows.sequence, s.heads, s.kv_heads, s.head_size, s.value_size(), Name(dtype),
      pass == AttentionPass::kForward ? "forward" : "backward");
}

bool HasFusedKernels(const AttentionShape& shape, DType dtype) {
  return (dtype == DType::kBf16 || dtype == DType::kF16) && shape.head_size % 8 == 0 &&
         shape.value_size() % 8 == 0 && shape.scores.plain();
}

// While it lives, this thread may allocate although a stream is being captured.
class AllowAllocation {
 public:
  AllowAllocation() { TRIMTAB_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~AllowAllocation() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  AllowAllocation(const AllowAllocation&) = delete;
  AllowAllocation& operator=(const AllowAllocation&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// cuDNN's part of a device: its handle and the plans built so far.
class CudnnState {
 public:
  const Entry& Find(CudaDevice& device, AttentionPass pass, const AttentionShape& shape,
                    DType dtype);
  cudnnHandle_t handle() const { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(cudnnHandle_t handle) const { Cudnn().destroy(handle); }
  };

  Entry Build(CudaDevice& device, AttentionPass pass, const AttentionShape& shape, DType dtype);

  // Destroyed after the plans.
  std::unique_ptr<cudnnContext, Destroy> handle_;
  std::map<Key, Entry> entries_;
};

// Parts of the whole, largest first: fewer sequences, then, of one sequence, fewer heads. What is
// packed by head in memory stays packed in each, and begins at a multiple of 16 bytes.
std::vector<AttentionPart> PartsOf(const AttentionShape& shape) {
  constexpr int64_t kAligned = 16 / SizeOf(DType::kF32);
  const int64_t group = shape.heads / shape.kv_heads;
  std::vector<AttentionPart> parts = {{shape.rows.batch, shape.kv_heads}};
  for (int64_t batch = shape.rows.batch - 1; batch >= 1; --batch) {
    if (shape.rows.batch % batch == 0 && batch * shape.heads * shape.rows.sequence % kAligned == 0)
      parts.push_back({batch, shape.kv_heads});
  }
  for (int64_t heads = shape.kv_heads - 1; heads >= 1; --heads) {
    if (shape.kv_heads % heads == 0 && heads * group * shape.rows.sequence % kAligned == 0)
      parts.push_back({1, heads});
  }
  return parts;
}

AttentionGraph GraphOf(AttentionPass pass, const AttentionShape& shape, const AttentionPart& part,
                       DType dtype) {
  const cudnnDataType_t type = dtype == DType::kBf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
  return pass == AttentionPass::kForward ? AttentionForwardGraph(shape, part, type)
                                         : AttentionBackwardGraph(shape, part, type);
}

Entry CudnnState::Build(CudaDevice& device, AttentionPass pass, const AttentionShape& shape,
                        DType dtype) {
  if (!HasFusedKernels(shape, dtype))
    return {nullptr,
            fmt::format("no fused kernel for head size {} in {}{}", shape.head_size, Name(dtype),
                        shape.scores.plain() ? "" : ", with capped, windowed or ALiBi scores")};
  if (!CudnnUnavailable().empty()) return {nullptr, CudnnUnavailable()};
  if (pass == AttentionPass::kBackward) {
    const auto version = static_cast<int64_t>(Cudnn().get_version());
    const std::string refusal = CudnnBackwardRefusal(version, shape.rows.sequence);
    if (!refusal.empty()) return {nullptr, refusal};
  }

  const cudaStream_t stream = device.Activate();
  const AllowAllocation allow;
  if (handle_ == nullptr) {
    cudnnHandle_t handle = nullptr;
    TRIMTAB_CUDNN_CHECK("handle", Cudnn().create(&handle));
    handle_.reset(handle);
    TRIMTAB_CUDNN_CHECK("handle", Cudnn().set_stream(handle, stream));
  }
  std::string refusal = "no engine takes the graph";
  for (const AttentionPart& part : PartsOf(shape)) {
    const auto graph = std::make_shared<AttentionGraph>(GraphOf(pass, shape, part, dtype));
    const auto operations =
        std::make_shared<CudnnDescriptor>(graph->graph.Finish(handle(), "attention"));
    const CudnnTarget target = {handle(), nullptr};
    for (CudnnDescriptor& config : CudnnEngineConfigs(*operations, target)) {
      const int64_t workspace = config.GetInt64(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
      if (workspace > CudaDevice::kScratchBytes) {
        // The best engine for less at once, rather than a worse one for all.
        refusal = fmt::format("it needs {} bytes of workspace", workspace);
        break;
      }
      try {
        CudnnDescriptor plan = CudnnPlan(config, target);
        // What it really takes; the configuration says what it may.
        const int64_t taken = plan.GetInt64(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
        if (taken > CudaDevice::kScratchBytes) {
          refusal = fmt::format("its plan needs {} bytes of workspace", taken);
          continue;
        }
        LogDebug("attention of {}: cuDNN's engine {}, {} sequences and {} key/value heads at once",
                 Describe(pass, shape, dtype), DescribeEngine(config).index, part.batch,
                 part.kv_heads);
        return {std::make_unique<const Plan>(
                    Plan{part, graph, operations, std::move(config), std::move(plan)}),
                ""};
      } catch (const CudnnError& error) {
        refusal = error.what();
      }
    }
  }
  return {nullptr, refusal};
}

const Entry& CudnnState::Find(CudaDevice& device, AttentionPass pass, const AttentionShape& shape,
                              DType dtype) {
  const Key key = KeyOf(pass, shape, dtype);
  const auto found = entries_.find(key);
  if (found != entries_.end()) return found->second;
  Entry entry;
  try {
    entry = Build(device, pass, shape, dtype);
  } catch (const CudnnError& error) {
    entry.refusal = error.what();
  }
  if (entry.plan == nullptr && HasFusedKernels(shape, dtype)) {
    LogWarning("attention of {}: not by cuDNN, so slower: {}", Describe(pass, shape, dtype),
               entry.refusal);
  }
  return entries_.emplace(key, std::move(entry)).first->second;
}

// Where a part's rows begin.
struct PartOffsets {
  int64_t query;  // elements of qkv and dqkv
  int64_t key;
  int64_t value;
  int64_t out;   // elements of out and dout
  int64_t rows;  // rows of log_sum_exp, of the row sums, of the sums of dq
};

template <typename Function>
void ForEachPart(const AttentionShape& s, const AttentionPart& part, Function function) {
  const int64_t group = s.heads / s.kv_heads;
  for (int64_t batch = 0; batch < s.rows.batch; batch += part.batch) {
    for (int64_t kv_head = 0; kv_head < s.kv_heads; kv_head += part.kv_heads) {
      const int64_t head = kv_head * group;
      const int64_t token = batch * s.rows.sequence;
      const int64_t qkv = token * s.qkv_size();
      function(PartOffsets{
          .query = qkv + head * s.head_size,
          .key = qkv + (s.heads + kv_head) * s.head_size,
          .value = qkv + (s.heads + s.kv_heads) * s.head_size + kv_head * s.value_size(),
          .out = token * s.out_size() + head * s.value_size(),
          .rows = (batch * s.heads + head) * s.rows.sequence});
    }
  }
}

// Element `offset` of an array of 16-bit values. Operands are all passed as writable.
void* At(const void* values, int64_t offset) {
  return static_cast<uint16_t*>(const_cast<void*>(values)) + offset;
}
void* At(const float* values, int64_t offset) { return const_cast<float*>(values) + offset; }

// The numbers in the graphs.
struct Scalars {
  float scale;
  float minus_infinity = -std::numeric_limits<float>::infinity();
  float one = 1.0f;
};

const Plan& PlanOf(CudaDevice& device, AttentionPass pass, const AttentionShape& shape,
                   DType dtype) {
  const Entry& entry = device.State<CudnnState>().Find(device, pass, shape, dtype);
  TRIMTAB_ASSERT(entry.plan != nullptr, "attention of {}: not by cuDNN: {}",
                 Describe(pass, shape, dtype), entry.refusal);
  return *entry.plan;
}

}  // namespace

const std::string& CudnnAttentionRefusal(Device& device, AttentionPass pass,
                                         const AttentionShape& shape, DType dtype) {
  auto& cuda = static_cast<CudaDevice&>(device);
  return cuda.State<CudnnState>().Find(cuda, pass, shape, dtype).refusal;
}

void AttentionForwardCudnn(Device& device, const AttentionForwardCall& call) {
  auto& cuda = static_cast<CudaDevice&>(device);
  const Plan& plan = PlanOf(cuda, AttentionPass::kForward, call.shape, call.dtype);
  const AttentionGraph& g = *plan.graph;
  Scalars scalars{static_cast<float>(call.shape.score_scale())};
  cuda.Activate();
  ForEachPart(call.shape, plan.part, [&](const PartOffsets& at) {
    CudnnExecute(cuda.State<CudnnState>().handle(), plan.plan,
                 {{g.scale, &scalars.scale},
                  {g.hidden, &scalars.minus_infinity},
                  {g.query, At(call.qkv, at.query)},
                  {g.key, At(call.qkv, at.key)},
                  {g.value, At(call.qkv, at.value)},
                  {g.out, At(call.out, at.out)},
                  {g.log_sum_exp, At(call.log_sum_exp, at.rows)}},
                 cuda.scratch());
  });
}

void AttentionBackwardCudnn(Device& device, const AttentionBackwardCall& call) {
  auto& cuda = static_cast<CudaDevice&>(device);
  const Plan& plan = PlanOf(cuda, AttentionPass::kBackward, call.shape, call.dtype);
  const AttentionGraph& g = *plan.graph;
  Scalars scalars{static_cast<float>(call.shape.score_scale())};
  cuda.Activate();
  ForEachPart(call.shape, plan.part, [&](const PartOffsets& at) {
    CudnnExecute(cuda.State<CudnnState>().handle(), plan.plan,
                 {{g.scale, &scalars.scale},
                  {g.hidden, &scalars.minus_infinity},
                  {g.one, &scalars.one},
                  {g.query, At(call.qkv, at.query)},
                  {g.key, At(call.qkv, at.key)},
                  {g.value, At(call.qkv, at.value)},
                  {g.out, At(call.out, at.out)},
                  {g.dout, At(call.dout, at.out)},
                  {g.log_sum_exp, At(call.log_sum_exp, at.rows)},
                  {g.row_sums, At(call.row_sums(), at.rows)},
                  {g.dquery_sums, At(call.dquery_sums(), at.rows * call.shape.head_size)},
                  {g.dquery, At(call.dqkv, at.query)},
                  {g.dkey, At(call.dqkv, at.key)},
                  {g.dvalue, At(call.dqkv, at.value)}},
                 cuda.scratch());
  });
}

}  // namespace trimtab
