#include "engine/config/model/layer_spec.h"

#include "engine/base/units.h"

namespace trimtab {

bool MlpSpec::IsGated(ActivationKind kind) {
  return kind == ActivationKind::kSwiGlu || kind == ActivationKind::kGeGlu ||
         kind == ActivationKind::kGeGluErf || kind == ActivationKind::kClampedSwiGlu;
}

const AttentionSpec& LayerSpec::attention() const {
  const LatentSpec* latent = std::get_if<LatentSpec>(&mixer);
  return latent != nullptr ? latent->heads : std::get<AttentionSpec>(mixer);
}

int64_t VocabSpec::padded_rows(int64_t tp) const { return RoundUp(vocab_size, divisible_by * tp); }

}  // namespace trimtab
