#include "profiler/token_source.h"

#include "engine/base/error.h"
#include "engine/data/dataset.h"

namespace trimtab {

std::unique_ptr<TokenSource> OpenTokenSource(const RunConfig& run) {
  std::unique_ptr<TokenSource> source = run.data.empty()
                                            ? MakeSyntheticSource(run.model.vocab_size, run.seed)
                                            : OpenDataset(run.data, run.sequence_length, run.seed);
  if (source->vocab_size() > run.model.vocab_size) {
    throw InputError(fmt::format("{}: its token ids go up to {}, the model's vocabulary has {}",
                                 run.data, source->vocab_size() - 1, run.model.vocab_size));
  }
  return source;
}

}  // namespace trimtab
