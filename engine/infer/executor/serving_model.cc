#include "engine/infer/executor/serving_model.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "engine/base/units.h"
#include "engine/device/cpu/parallel.h"
#include "engine/layers/attention/layer_cache.h"
#include "engine/parameters/packed_parameter.h"
#include "engine/runtime/chunks.h"
#include "engine/runtime/context.h"

namespace trimtab {
namespace {

/// The rows of a plan, and those whose logits are asked; of both a multiple of `multiple`. Rows
/// that fill up are a segment of their own, which lies in the blocks from `spare_block` on.
struct PlanRows {
  std::vector<PagedSegment> segments;
  std::vector<std::vector<int32_t>> blocks;
  std::vector<int32_t> tokens;
  std::vector<int32_t> outputs;

  PlanRows(const StepPlan& plan, int64_t multiple, int64_t spare_block) {
    for (const PlannedSequence& each : plan.sequences) {
      const auto first = std::ssize(tokens);
      const auto count = std::ssize(each.tokens);
      segments.push_back({first, count, each.first_position});
      blocks.push_back(each.blocks);
      tokens.insert(tokens.end(), each.tokens.begin(), each.tokens.end());
      for (int64_t row = count - each.logits; row < count; ++row) {
        outputs.push_back(static_cast<int32_t>(first + row));
      }
    }
    const auto count = std::ssize(tokens);
    if (const int64_t more = RoundUp(count, multiple) - count; more > 0) {
      segments.push_back({count, more, 0});
      tokens.resize(static_cast<size_t>(count + more));
      auto& spare = blocks.emplace_back(static_cast<size_t>(more));
      std::iota(spare.begin(), spare.end(), static_cast<int32_t>(spare_block));
    }
    // A step without logits has a head all the same.
    outputs.resize(
        static_cast<size_t>(RoundUp(std::max<int64_t>(1, std::ssize(outputs)), multiple)));
  }
};

Tensor UploadIds(Device& device, const std::vector<int32_t>& ids) {
  Tensor tensor = Tensor::Empty(device, {std::ssize(ids)}, DType::kI32, MemoryTag::kActivations);
  CopyFromHost(tensor, std::span<const int32_t>(ids));
  return tensor;
}

/// Whether what is multiplied is packed: always where that is the fast way to read it.
bool Packs(WeightFormat format, const Executor& executor) {
  return executor.kind == DeviceKind::kCpu || format == WeightFormat::kF8 ||
         format == WeightFormat::kInt8 || format == WeightFormat::kInt4;
}

/// Of a matrix of so many columns.
std::vector<float> Transposed(std::span<const float> matrix, int64_t columns) {
  const size_t width = static_cast<size_t>(columns);
  const size_t rows = matrix.size() / width;
  std::vector<float> result(matrix.size());
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < width; ++column) {
      result[column * rows + row] = matrix[row * width + column];
    }
  }
  return result;
}

/// Where a block lies in `tensor`, whose dimension `dim`, 0 or 1, counts blocks: calls
/// `each(address, bytes)` for its parts. Undefined ones have none.
template <typename Each>
void ForEachPartOfBlock(const Tensor& tensor, int dim, int32_t block, const Each& each) {
  if (!tensor.defined()) return;
  const int64_t parts = dim == 0 ? 1 : tensor.dim(0);
  const int64_t blocks = tensor.dim(dim);
  const int64_t bytes = tensor.bytes() / parts / blocks;
  for (int64_t part = 0; part < parts; ++part) {
    each(static_cast<std::byte*>(tensor.raw()) + (part * blocks + block) * bytes, bytes);
  }
}

/// The same in all of `caches`.
template <typename Each>
void ForEachPartOfBlock(std::span<const PagedCache> caches, int32_t block, const Each& each) {
  for (const PagedCache& cache : caches) {
    ForEachPartOfBlock(cache.keys, /*dim=*/0, block, each);
    ForEachPartOfBlock(cache.values, /*dim=*/0, block, each);
    ForEachPartOfBlock(cache.scales, /*dim=*/1, block, each);
  }
}

WeightFormat FormatOf(DType dtype) {
  if (dtype == DType::kBf16) return WeightFormat::kBf16;
  return dtype == DType::kF16 ? WeightFormat::kF16 : WeightFormat::kF32;
}

}  // namespace

ServingModel::ServingModel(const ServingConfig& config, const ParallelContext& parallel,
                           Device& device, const WeightSource* source)
    : config_(config),
      run_(RunOf(config)),
      parallel_(parallel),
      device_(device),
      context_(ContextOf(run_, parallel, device, /*fp8=*/nullptr)),
      model_(store_, context_, ChunksOf(run_, parallel.pp_rank).front()) {
  store_.Place({});
  store_.buffers().Allocate(device);
  LoadWeights(source);
  const int64_t blocks = config_.cache_blocks + row_multiple() - 1;
  const ModelChunk& chunk = model_.chunk();
  for (int64_t i = 0; i < chunk.num_layers; ++i) {
    const MixerSpec mixer = config_.model.layer(chunk.first_layer + i).mixer;
    caches_.push_back(
        NewLayerCache(device, mixer, config_.layout.tp, blocks, config_.block_size, config_.cache));
  }
}

void ServingModel::Place(Parameter& parameter, std::span<const float> values,
                         std::span<const float> input_scales) {
  const ParameterSpec& spec = parameter.spec;
  // Routers and gates, which are small and decide, keep the activations' type.
  const WeightFormat format =
      spec.tensor_parallel ? config_.weights : FormatOf(context_.types.weights);
  const bool packs = spec.multiplied > 0 && (spec.absorbed_rows > 0 || !input_scales.empty() ||
                                             Packs(format, device_.executor()));
  if (packs) {
    Pack(parameter, format, values);
    return PlaceInputScales(parameter, input_scales);
  }
  const Shape shape = spec.is_matrix ? Shape{spec.rows, spec.columns} : Shape{spec.rows};
  parameter.weight = Tensor::Empty(device_, shape, context_.types.weights, MemoryTag::kWeights);
  if (!values.empty()) CopyFromHost(parameter.weight, values);
}

void ServingModel::Pack(Parameter& parameter, WeightFormat format, std::span<const float> values) {
  const ParameterSpec& spec = parameter.spec;
  if (ScalesOf(format, spec.columns) > 0) RequireFinite(spec, values);
  AllocatePacked(device_, format, parameter);
  const int64_t absorbed = spec.absorbed_rows;
  const auto size = static_cast<size_t>(spec.rows / spec.multiplied * spec.columns);
  const auto first = static_cast<size_t>(absorbed * spec.columns);
  for (int64_t i = 0; i < spec.multiplied && !values.empty(); ++i) {
    const auto matrix = values.subspan(static_cast<size_t>(i) * size, size);
    PackWeights(matrix.subspan(first), i, parameter.packed);
    if (absorbed > 0) {
      PackWeights(Transposed(matrix.first(first), spec.columns), i, parameter.packed_absorbed);
    }
  }
}

void ServingModel::PlaceInputScales(Parameter& parameter, std::span<const float> scales) {
  if (scales.empty()) return;
  const ParameterSpec& spec = parameter.spec;
  TRIMTAB_ASSERT(spec.multiplied == 1 && std::ssize(scales) == spec.partition.full_columns,
                 "{}: {} scales of inputs", spec.name.view(), scales.size());
  parameter.packed.input_scales =
      Tensor::Empty(device_, {spec.columns}, DType::kF32, MemoryTag::kWeights);
  CopyFromHost(parameter.packed.input_scales,
               scales.subspan(static_cast<size_t>(spec.partition.column_begin),
                              static_cast<size_t>(spec.columns)));
}

void ServingModel::LoadWeights(const WeightSource* source) {
  std::vector<float> values;
  for (Parameter* parameter : store_.parameters()) {
    if (device_.kind() != DeviceKind::kMeta) {
      values.assign(static_cast<size_t>(parameter->numel()), 0.0f);  // padding is in no source
      source->Read({.spec = &parameter->spec, .begin = 0, .values = values});
    }
    std::vector<float> input_scales;
    if (source != nullptr) input_scales = source->InputScales(parameter->spec);
    Place(*parameter, values, input_scales);
  }
  if (device_.kind() != DeviceKind::kMeta) {
    LoadBuffers(store_.buffers(), source->buffers(), "weights");
  }
}

std::vector<float> ServingModel::Run(const StepPlan& plan) {
  std::vector<float> logits;
  // Only loops of the cpu have use for them.
  const int workers = device_.kind() == DeviceKind::kCpu ? device_.threads() : 1;
  WithWorkerPool(workers, [&] { logits = RunPlan(plan); });
  return logits;
}

std::vector<float> ServingModel::RunPlan(const StepPlan& plan) {
  const PlanRows rows(plan, row_multiple(), config_.cache_blocks);
  const RowLayout layout =
      RowLayout::Paged(device_, rows.segments, rows.blocks, MemoryTag::kActivations);
  ServingPass pass;
  pass.rows = &layout;
  pass.caches = caches_;
  const int rank = parallel_.pp_rank;
  if (model_.chunk().embedding) {
    pass.tokens = UploadIds(device_, rows.tokens);
  } else {
    pass.hidden = context_.New({layout.rows() / row_multiple(), run_.model.hidden_size},
                               MemoryTag::kActivations);
    parallel_.pp->Recv(pass.hidden, rank - 1);
  }
  if (!model_.chunk().head) {
    parallel_.pp->Send(model_.Serve(pass), rank + 1);
    return {};
  }
  pass.outputs = UploadIds(device_, rows.outputs);
  if (plan.output == StepOutput::kStates) {
    pass.head = ServedHead::kStates;
    return CollectStates(model_.Serve(pass), plan.logit_rows());
  }
  return CollectLogits(model_.Serve(pass), plan.logit_rows());
}

std::vector<std::byte> ServingModel::ReadBlocks(std::span<const int32_t> blocks) const {
  std::vector<std::byte> contents(blocks.size() * static_cast<size_t>(block_bytes()));
  std::byte* next = contents.data();
  for (const int32_t block : blocks) {
    ForEachPartOfBlock(caches_, block, [&](const std::byte* part, int64_t bytes) {
      device_.CopyToHost(next, part, bytes);
      next += bytes;
    });
  }
  return contents;
}

void ServingModel::WriteBlocks(std::span<const int32_t> blocks,
                               std::span<const std::byte> contents) {
  const size_t count = blocks.size() * static_cast<size_t>(block_bytes());
  TRIMTAB_ASSERT(contents.size() >= count, "{} bytes for {} blocks", contents.size(),
                 blocks.size());
  const std::byte* next = contents.last(count).data();
  for (const int32_t block : blocks) {
    ForEachPartOfBlock(caches_, block, [&](std::byte* part, int64_t bytes) {
      device_.CopyFromHost(part, next, bytes);
      next += bytes;
    });
  }
}

int64_t ServingModel::block_bytes() const {
  int64_t sum = 0;
  ForEachPartOfBlock(caches_, /*block=*/0,
                     [&sum](const std::byte*, int64_t bytes) { sum += bytes; });
  return sum;
}

std::vector<float> ServingModel::CollectStates(const Tensor& states, int64_t rows) const {
  if (parallel_.tp_rank != 0 || device_.kind() == DeviceKind::kMeta) return {};
  std::vector<float> whole(static_cast<size_t>(states.numel()));
  CopyToHost(states, whole);
  whole.resize(static_cast<size_t>(rows * hidden_size()));
  return whole;
}

std::vector<float> ServingModel::CollectLogits(const Tensor& logits, int64_t rows) const {
  const int64_t tp = parallel_.layout.tp;
  const int64_t share = logits.dim(1);
  Tensor all = logits;
  if (tp > 1) {
    all = context_.New({tp * logits.dim(0), share}, MemoryTag::kCommunication);
    parallel_.tp->AllGather(logits, all);
  }
  if (parallel_.tp_rank != 0 || device_.kind() == DeviceKind::kMeta) return {};
  std::vector<float> copy;
  const float* shares = nullptr;
  if (device_.kind() == DeviceKind::kCpu && all.dtype() == DType::kF32) {
    shares = all.f32();
  } else {
    copy.resize(static_cast<size_t>(all.numel()));
    CopyToHost(all, copy);
    shares = copy.data();
  }
  const int64_t vocab = run_.model.vocab_size;
  std::vector<float> whole;
  whole.reserve(static_cast<size_t>(rows * vocab));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t rank = 0; rank < tp; ++rank) {
      const int64_t used = std::clamp<int64_t>(vocab - rank * share, 0, share);
      const float* first = shares + (rank * logits.dim(0) + row) * share;
      whole.insert(whole.end(), first, first + used);
    }
  }
  return whole;
}

}  // namespace trimtab
