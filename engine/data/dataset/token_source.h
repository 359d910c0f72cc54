// TokenSource: where a training run's samples come from.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/config/run/packing_config.h"

namespace trimtab {

/// An endless, deterministic sequence of samples. The position of a run in it is only the number of
/// samples consumed, so resuming needs nothing else. Safe to use from several threads at once.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// Fills `tokens` (T+1 ids: inputs are the first T, targets the last T) with sample `index`, from
  /// 0 on. Ids are in [0, vocab_size()). Throws InputError when the data holds another id.
  virtual void Sample(int64_t index, std::span<int32_t> tokens) const = 0;

  /// Appends the offsets, ascending, at which documents begin in sample `index` of `length` + 1
  /// tokens: of 1 to `length`. At offset 0 there begins a document, or what is left of one. Without
  /// an implementation every sample is one document.
  virtual void DocumentBegins(int64_t /*index*/, int64_t /*length*/,
                              std::vector<int64_t>& /*begins*/) const {}

  virtual int64_t vocab_size() const = 0;
};

/// Pseudo-random ids, uniform over [0, vocab_size): needs no file, can not be learned. Samples are
/// cut out of documents whose lengths are drawn from `lengths`; empty: each is one document.
std::unique_ptr<TokenSource> MakeSyntheticSource(int64_t vocab_size, uint64_t seed,
                                                 std::vector<DocumentLength> lengths = {});

}  // namespace trimtab
