// ServingLayer: what embedding, one layer and head of a model do in a step of serving, as the
// engine reports it on the meta device.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cost_model/serving/serving_work.h"
#include "engine/comm/parallel_context.h"
#include "engine/config/run/run_config.h"
#include "engine/device/device.h"
#include "engine/device/record.h"
#include "engine/model/gpt_model.h"
#include "engine/parameters/parameter.h"

namespace trimtab {

/// A piece of the pass.
struct ServingPiece {
  PieceRecord piece;
  std::vector<OpRecord> ops{};
  std::vector<CommRecord> messages{};
};

/// On the first rank of the layout of one stage.
class ServingLayer {
 public:
  /// With layer `layer` of `model`. Throws InfeasibleError where a rule of layouts is broken.
  ServingLayer(const ModelConfig& model, const ParallelConfig& layout, int64_t layer);

  /// Embedding, layer and head of a step.
  std::vector<ServingPiece> Record(const ServingStep& step);

  const ParameterStore& store() const { return store_; }

 private:
  RunConfig run_;
  std::unique_ptr<Device> device_;
  ParallelContext parallel_;
  ParameterStore store_;
  std::optional<GptModel> model_;
  PagedCache cache_;
};

}  // namespace trimtab
