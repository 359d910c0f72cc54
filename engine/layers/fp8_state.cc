#include "engine/layers/fp8_state.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {
namespace {

constexpr DType kForward = DType::kF8E4M3;
constexpr DType kBackward = DType::kF8E5M2;

Tensor NewScalars(Device& device, const Shape& shape, float value) {
  Tensor tensor = Tensor::Empty(device, shape, DType::kF32, MemoryTag::kWeights);
  Fill(tensor, value);
  return tensor;
}

Fp8Scales NewScales(Device& device, int64_t count) {
  return {NewScalars(device, {count}, 1.0f), NewScalars(device, {count, kFp8InverseStride}, 1.0f)};
}

Tensor At(const Tensor& vector, int64_t slot) { return vector.Slice(slot, {1}); }

Tensor InverseAt(const Fp8Scales& scales, int64_t slot) {
  return At(scales.inverse, slot * kFp8InverseStride);
}

Fp8Scales Part(const Fp8Scales& scales, int64_t first, int64_t count) {
  return {scales.scale.Slice(first, {count}),
          scales.inverse.Slice(first * kFp8InverseStride, {count, kFp8InverseStride})};
}

bool OfExperts(const Parameter& weight) { return weight.spec.grid == ParallelGrid::kExperts; }

/// The ranks that have a part each of what is `sharded` over tp.
Communicator* SharersOf(const ParallelContext& parallel, bool sharded) {
  return sharded && parallel.layout.tp > 1 ? parallel.tp.get() : nullptr;
}

/// The ranks that together hold the experts of a layer, if they are several.
Communicator* ExpertSharersOf(const ParallelContext& parallel) {
  return parallel.layout.etp * parallel.layout.ep > 1 ? parallel.etp_ep.get() : nullptr;
}

}  // namespace

int Fp8State::Declare(const std::string& name, const Parameter& weight) {
  names_.push_back(name);
  if (!ComputesInFp8(config_, name)) return -1;
  layers_.push_back({.name = name, .parameter = &weight, .fp8 = {}});
  return static_cast<int>(layers_.size()) - 1;
}

void Fp8State::RequireNamedLayers() const {
  for (const std::string& kept : config_.bf16_layers) {
    const auto matches = [&kept](const std::string& name) {
      return !ComputesInFp8({.bf16_layers = {kept}}, name);
    };
    if (std::none_of(names_.begin(), names_.end(), matches)) {
      throw InputError(fmt::format(
          "fp8.bf16_layers: no linear layer is called '{}' or lies in it; expected a name such as "
          "'{}'",
          kept, names_.empty() ? "" : names_.front()));
    }
  }
}

std::vector<bool> Fp8State::InFp8() const {
  std::vector<bool> in_fp8;
  for (const std::string& name : names_) in_fp8.push_back(ComputesInFp8(config_, name));
  return in_fp8;
}

void Fp8State::Allocate(Device& device, int64_t in_flight, bool keeps_weights) {
  const int64_t count = static_cast<int64_t>(layers_.size());
  const int64_t slots = kOperands * count;
  if (delayed()) amax_ = NewScalars(device, {config_.history, slots}, 0.0f);
  current_amax_ = NewScalars(device, {1, 1}, 0.0f);
  // A dry run stands for any step but the first.
  has_history_ = device.kind() == DeviceKind::kMeta;
  in_flight_ = in_flight;
  scales_ = NewScales(device, in_flight * slots);
  fp8_max_ = NewScalars(device, {slots}, 0.0f);
  std::vector<float> largest(static_cast<size_t>(slots));
  for (int64_t i = 0; i < slots; ++i) {
    largest[static_cast<size_t>(i)] = Fp8Max(i % kOperands == 0 ? kForward : kBackward);
  }
  CopyFromHost(fp8_max_, largest);
  weight_amax_ = NewScalars(device, {1, count}, 0.0f);
  weight_max_ = NewScalars(device, {count}, Fp8Max(kForward));
  weight_scales_ = NewScales(device, count);
  for (int64_t i = 0; i < count; ++i) {
    layers_[static_cast<size_t>(i)].fp8.inverse = InverseAt(weight_scales_, i);
  }
  if (keeps_weights) AllocateWeights(device, {0, layers_.size()}, MemoryTag::kWeights);
}

void Fp8State::AllocateWeights(Device& device, const LayerRange& range, MemoryTag tag) {
  for (size_t i = range.begin; i < range.end; ++i) {
    const ParameterSpec& spec = layers_[i].parameter->spec;
    const bool experts = OfExperts(*layers_[i].parameter);
    const auto make = [&](int64_t rows, int64_t columns) {
      const Shape shape = experts ? Shape{spec.multiplied, rows, columns} : Shape{rows, columns};
      return Tensor::Empty(device, shape, kForward, tag);
    };
    // Serving multiplies some dense weights head by head; training as one matrix.
    const int64_t out = experts ? spec.rows / spec.multiplied : spec.rows;
    layers_[i].fp8.rows = make(out, spec.columns);
    layers_[i].fp8.transposed = make(spec.columns, out);
  }
}

Fp8State::LayerRange Fp8State::LayersOf(size_t unit) const {
  // Layers are declared in the order of the units.
  const auto before = [unit](const Layer& layer) { return layer.parameter->unit < unit; };
  const auto within = [unit](const Layer& layer) { return layer.parameter->unit == unit; };
  const auto begin = std::partition_point(layers_.begin(), layers_.end(), before);
  const auto end = std::partition_point(begin, layers_.end(), within);
  return {static_cast<size_t>(begin - layers_.begin()), static_cast<size_t>(end - layers_.begin())};
}

void Fp8State::QuantizeWeights(const ParallelContext& parallel) {
  QuantizeRange(parallel, {0, layers_.size()});
}

void Fp8State::QuantizeUnit(const ParallelContext& parallel, size_t unit) {
  const LayerRange range = LayersOf(unit);
  if (range.begin == range.end) return;
  if (!layers_[range.begin].fp8.rows.defined()) {
    AllocateWeights(weight_amax_.device(), range, MemoryTag::kWorkspace);
  }
  QuantizeRange(parallel, range);
}

void Fp8State::ReleaseUnit(size_t unit) {
  const LayerRange range = LayersOf(unit);
  for (size_t i = range.begin; i < range.end; ++i) {
    layers_[i].fp8.rows = {};
    layers_[i].fp8.transposed = {};
  }
}

void Fp8State::QuantizeRange(const ParallelContext& parallel, const LayerRange& range) {
  if (range.begin == range.end) return;
  const auto first = static_cast<int64_t>(range.begin);
  const auto count = static_cast<int64_t>(range.end - range.begin);
  Tensor amaxes = weight_amax_.Slice(first, {1, count});
  for (int64_t i = 0; i < count; ++i) {
    Tensor amax = amaxes.Slice(i, {1});
    Amax(layers_[static_cast<size_t>(first + i)].parameter->weight, amax);
  }
  // Shards of one weight share a scale, so that a layout does not show in the values. Those that
  // have the whole of one know its largest value, and take no harm from hearing it again.
  const auto reduce = [&](bool experts, Communicator* sharers) {
    const auto concerned = [&](const Layer& layer) {
      return OfExperts(*layer.parameter) == experts;
    };
    const std::span layers = std::span(layers_).subspan(range.begin, range.end - range.begin);
    if (sharers == nullptr || std::ranges::none_of(layers, concerned)) return;
    sharers->AllReduce(amaxes, ReduceOp::kMax);
  };
  reduce(/*experts=*/false, SharersOf(parallel, /*sharded=*/true));
  reduce(/*experts=*/true, ExpertSharersOf(parallel));
  Fp8Scales scales = Part(weight_scales_, first, count);
  UpdateFp8Scales(weight_max_.Slice(first, {count}), amaxes, scales);
  for (int64_t i = 0; i < count; ++i) {
    Layer& layer = layers_[static_cast<size_t>(first + i)];
    Fp8Output out = {.rows = layer.fp8.rows, .transposed = layer.fp8.transposed, .amax = {}};
    const Tensor& weight = layer.parameter->weight;
    if (!OfExperts(*layer.parameter)) {
      trimtab::Quantize(weight, At(scales.scale, i), out);
      continue;
    }
    const std::vector<int64_t> rows(static_cast<size_t>(out.rows.dim(0)), out.rows.dim(1));
    out.rows = out.rows.Reshape(weight.shape());
    out.transposed = out.transposed.Reshape({weight.numel()});
    trimtab::QuantizeGroups(weight, rows, At(scales.scale, i), out);
  }
}

void Fp8State::EndStep(const ParallelContext& parallel) {
  if (!delayed() || layers_.empty()) return;
  Tensor newest = amax_.Slice(0, {1, amax_.dim(1)});
  if (parallel.layout.tp > 1) parallel.tp->AllReduce(newest, ReduceOp::kMax);
  if (parallel.dp->size() > 1) parallel.dp->AllReduce(newest, ReduceOp::kMax);
  Fp8Scales scales = DelayedScales();
  UpdateFp8Scales(fp8_max_, amax_, scales);
  has_history_ = true;
}

Fp8Scales Fp8State::DelayedScales() const { return Part(scales_, 0, fp8_max_.numel()); }

Fp8Scales Fp8State::ScalesOf(int64_t slot) const {
  const int64_t at = (current() ? micro_batch_ * fp8_max_.numel() : 0) + slot;
  return Part(scales_, at, 1);
}

void Fp8State::SetCurrentScale(int64_t slot, Communicator* sharers) {
  Tensor amax = current_amax_.Slice(0, {1});
  if (sharers != nullptr) sharers->AllReduce(amax, ReduceOp::kMax);
  Fp8Scales scale = ScalesOf(slot);
  UpdateFp8Scales(At(fp8_max_, slot), current_amax_, scale);
}

Fp8Output Fp8State::Begin(int64_t slot, const Tensor& x, Communicator* sharers, bool keep_scale,
                          Tensor rows, Tensor transposed) {
  if (current() && !keep_scale) {
    Tensor amax = current_amax_.Slice(0, {1});
    Amax(x, amax);
    SetCurrentScale(slot, sharers);
  }
  return {.rows = std::move(rows),
          .transposed = std::move(transposed),
          .amax = delayed() ? amax_.Slice(slot, {1}) : Tensor()};
}

void Fp8State::Quantize(const ParallelContext& parallel, int layer, Operand operand,
                        const Tensor& x, bool sharded, bool keep_scale, Tensor rows,
                        Tensor transposed) {
  const int64_t slot = Slot(layer, operand);
  Fp8Output out = Begin(slot, x, SharersOf(parallel, sharded), keep_scale, std::move(rows),
                        std::move(transposed));
  trimtab::Quantize(x, ScalesOf(slot).scale, out);
}

void Fp8State::QuantizeGroups(const ParallelContext& parallel, int layer, Operand operand,
                              const Tensor& x, GroupRows groups, bool keep_scale, Tensor rows,
                              Tensor transposed) {
  const int64_t slot = Slot(layer, operand);
  Fp8Output out =
      Begin(slot, x, ExpertSharersOf(parallel), keep_scale, std::move(rows), std::move(transposed));
  trimtab::QuantizeGroups(x, groups, ScalesOf(slot).scale, out);
}

std::vector<std::string> Fp8State::LayerNames() const {
  std::vector<std::string> names;
  for (const Layer& layer : layers_) names.push_back(layer.name);
  return names;
}

Fp8Snapshot Fp8State::Snapshot() const {
  if (!delayed() || !has_history_) return {};
  Fp8Snapshot snapshot = {.layers = LayerNames(), .history = amax_.dim(0)};
  const auto read = [](const Tensor& tensor, std::vector<float>& values) {
    values.resize(static_cast<size_t>(tensor.numel()));
    CopyToHost(tensor, values);
  };
  read(amax_, snapshot.amax);
  const Fp8Scales scales = DelayedScales();
  read(scales.scale, snapshot.scale);
  std::vector<float> rows;
  read(scales.inverse, rows);
  for (size_t i = 0; i < rows.size(); i += kFp8InverseStride) snapshot.inverse.push_back(rows[i]);
  return snapshot;
}

void Fp8State::Restore(const Fp8Snapshot& snapshot) {
  if (!delayed() || snapshot.history == 0 || layers_.empty()) return;
  const size_t own = layers_.size() * kOperands;
  const size_t all = snapshot.layers.size() * kOperands;
  std::vector<size_t> slots;  // of the snapshot, for each of this rank
  for (const std::string& name : LayerNames()) {
    const auto found = std::find(snapshot.layers.begin(), snapshot.layers.end(), name);
    if (found == snapshot.layers.end()) break;
    const auto first = static_cast<size_t>(found - snapshot.layers.begin()) * kOperands;
    for (size_t operand = 0; operand < kOperands; ++operand) slots.push_back(first + operand);
  }
  if (snapshot.history != amax_.dim(0) || slots.size() != own) {
    LogWarning(
        "fp8: the checkpoint's history of {} steps and {} layers is not this run's, of {} and "
        "{}; the next step has current scales",
        snapshot.history, snapshot.layers.size(), amax_.dim(0), layers_.size());
    return;
  }
  // `stride`: of the target, from one slot to the next.
  const auto pick = [&](const std::vector<float>& values, Tensor target, size_t stride = 1) {
    std::vector<float> picked;
    for (size_t row = 0; row < values.size() / all; ++row) {
      for (const size_t slot : slots) picked.insert(picked.end(), stride, values[row * all + slot]);
    }
    CopyFromHost(target, picked);
  };
  pick(snapshot.amax, amax_);
  pick(snapshot.scale, DelayedScales().scale);
  pick(snapshot.inverse, DelayedScales().inverse, kFp8InverseStride);
  has_history_ = true;
}

std::optional<Fp8Target> Fp8State::Target(int layer, Operand operand, bool sharded, int64_t rows,
                                          int64_t columns, MemoryTag transposed_tag) const {
  if (!delayed()) return std::nullopt;
  Device& device = amax_.device();
  const DType dtype = operand == Operand::kInput ? kForward : kBackward;
  const int64_t slot = Slot(layer, operand);
  return Fp8Target{
      .out = {.rows = Tensor::Empty(device, {rows, columns}, dtype, MemoryTag::kWorkspace),
              .transposed = Tensor::Empty(device, {columns, rows}, dtype, transposed_tag),
              .amax = amax_.Slice(slot, {1})},
      .slot = slot,
      .sharded = sharded};
}

void Fp8State::Write(const ParallelContext& parallel, Fp8Target& target, const FusedOp& op) {
  const Tensor scale = ScalesOf(target.slot).scale;
  if (!has_history_) {
    Fp8Output rehearsal = target.out;
    rehearsal.amax = current_amax_.Slice(0, {1});
    op(scale, rehearsal, /*rehearsal=*/true);
    SetCurrentScale(target.slot, SharersOf(parallel, target.sharded));
  }
  op(scale, target.out, /*rehearsal=*/false);
}

Tensor Fp8State::inverse(int layer, Operand operand) const {
  return InverseAt(ScalesOf(Slot(layer, operand)), 0);
}

}  // namespace trimtab
