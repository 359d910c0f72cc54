// TokenSource: where a training run's samples come from.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace trimtab {

/// An endless, deterministic sequence of samples. The position of a run in it is only the number of
/// samples consumed, so resuming needs nothing else. Safe to use from several threads at once.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// Fills `tokens` (T+1 ids: inputs are the first T, targets the last T) with sample `index`, from
  /// 0 on. Ids are in [0, vocab_size()). Throws InputError when the data holds another id.
  virtual void Sample(int64_t index, std::span<int32_t> tokens) const = 0;

  virtual int64_t vocab_size() const = 0;
};

/// Pseudo-random ids, uniform over [0, vocab_size): needs no file, can not be learned.
std::unique_ptr<TokenSource> MakeSyntheticSource(int64_t vocab_size, uint64_t seed);

}  // namespace trimtab
