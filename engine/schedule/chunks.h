// Which layers each model chunk of a pipeline holds.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/config/layout/stage_layers.h"

namespace trimtab {

/// Layers [first, first + count) of the model.
struct LayerRange {
  int64_t first = 0;
  int64_t count = 0;

  bool operator==(const LayerRange&) const = default;
};

/// Cuts the layers of a model over `chunks` chunks, in the order of the model. `counts`, if given,
/// are the layers of each chunk and add up to `num_layers`. Else they are balanced: the embedding
/// and the loss count as a layer each, no chunk has more than one more than another, and the first,
/// the last, then the later chunks of the rest get the larger share: later stages hold fewer micro
/// batches. Where the chunks divide the layers evenly, every chunk gets the same number.
std::vector<LayerRange> CutLayers(int64_t num_layers, int64_t chunks,
                                  const StageLayers& counts = {});

}  // namespace trimtab
