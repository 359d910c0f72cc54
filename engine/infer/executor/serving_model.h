// ServingModel: one rank's part of a model that serves, with its weights and its cache.
#pragma once

#include <span>
#include <vector>

#include "engine/infer/scheduler/step_plan.h"
#include "engine/infer/serving_config.h"
#include "engine/model/gpt_model.h"
#include "engine/runtime/weights/weight_source.h"

namespace trimtab {

class ServingModel {
 public:
  /// Allocates weights and cache on `device` and reads the weights; on meta `source` may be null.
  /// All must outlive it. The configuration is resolved.
  ServingModel(const ServingConfig& config, const ParallelContext& parallel, Device& device,
               const WeightSource* source);

  /// Carries out a step; every rank calls it with the same plan. Returns logits
  /// [plan.logit_rows(), V], or states [plan.logit_rows(), C], on the first tensor-parallel rank of
  /// the last stage, nothing on the others.
  std::vector<float> Run(const StepPlan& plan);

  /// What this rank has of `blocks` of the cache, one after the other.
  std::vector<std::byte> ReadBlocks(std::span<const int32_t> blocks) const;
  /// Gives them what the last as many of those blocks held that `contents` are of.
  void WriteBlocks(std::span<const int32_t> blocks, std::span<const std::byte> contents);
  /// Bytes that this rank has of a block.
  int64_t block_bytes() const;

  /// V.
  int64_t vocab_size() const { return run_.model.vocab_size; }
  /// C.
  int64_t hidden_size() const { return run_.model.hidden_size; }

  /// Told what linear layers multiply from now on. Not owned.
  void Observe(LinearObserver* observer) { model_.Observe(observer); }

 private:
  /// Of what every tensor-parallel rank has a share, there must be a multiple.
  int64_t row_multiple() const { return context_.sequence_parallel() ? context_.tp() : 1; }
  void LoadWeights(const WeightSource* source);
  /// Puts `values`, all of the parameter's, where the layers look for them.
  void Place(Parameter& parameter, std::span<const float> values,
             std::span<const float> input_scales);
  /// The same, as what it is multiplied by.
  void Pack(Parameter& parameter, WeightFormat format, std::span<const float> values);
  /// Those of the whole parameter; none leaves it without.
  void PlaceInputScales(Parameter& parameter, std::span<const float> scales);
  /// Run, on whatever workers are at hand.
  std::vector<float> RunPlan(const StepPlan& plan);
  /// Of the first `rows` rows.
  std::vector<float> CollectLogits(const Tensor& logits, int64_t rows) const;
  /// The first `rows` of `states` [rows of all ranks, C], on the first rank.
  std::vector<float> CollectStates(const Tensor& states, int64_t rows) const;

  ServingConfig config_;
  RunConfig run_;
  const ParallelContext& parallel_;
  Device& device_;
  LayerContext context_;
  ParameterStore store_;
  GptModel model_;
  std::vector<PagedCache> caches_;  // of the chunk's layers
};

}  // namespace trimtab
