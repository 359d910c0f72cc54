#include "engine/infer/scheduler/acceptance.h"

#include "engine/base/mix.h"

namespace trimtab {

bool IsAccepted(double acceptance, uint64_t seed, int64_t position) {
  const uint64_t bits = MixBits(MixBits(seed) + static_cast<uint64_t>(position));
  return static_cast<double>(bits >> 11) < acceptance * 0x1p53;
}

double AcceptanceOf(int64_t checked, int64_t accepted) {
  return checked > 0 ? static_cast<double>(accepted) / static_cast<double>(checked) : 0;
}

}  // namespace trimtab
