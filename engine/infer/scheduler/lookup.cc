#include "engine/infer/scheduler/lookup.h"

#include <algorithm>

#include "engine/base/mix.h"

namespace trimtab {
namespace {

template <typename Gram>
Gram GramAt(std::span<const int32_t> history, int64_t begin) {
  Gram gram;
  std::copy_n(history.begin() + begin, gram.size(), gram.begin());
  return gram;
}

}  // namespace

template <size_t kLength>
size_t ContinuationIndex::Places<kLength>::Hash::operator()(const Gram& gram) const {
  uint64_t hash = 0;
  for (const int32_t token : gram) hash = MixBits(hash + static_cast<uint32_t>(token));
  return hash;
}

template <size_t kLength>
void ContinuationIndex::Places<kLength>::Add(std::span<const int32_t> history) {
  for (; added + static_cast<int64_t>(kLength) < std::ssize(history); ++added) {
    latest[GramAt<Gram>(history, added)] = added;
  }
}

template <size_t kLength>
std::span<const int32_t> ContinuationIndex::Places<kLength>::Behind(
    std::span<const int32_t> history) const {
  if (history.size() <= kLength) return {};
  const int64_t last = std::ssize(history) - static_cast<int64_t>(kLength);
  const auto found = latest.find(GramAt<Gram>(history, last));
  if (found == latest.end()) return {};
  return history.subspan(static_cast<size_t>(found->second) + kLength);
}

std::vector<int32_t> ContinuationIndex::Find(std::span<const int32_t> history, int64_t most) {
  if (most <= 0) return {};
  triples_.Add(history);
  pairs_.Add(history);
  std::span<const int32_t> behind = triples_.Behind(history);
  if (behind.empty()) behind = pairs_.Behind(history);
  const size_t count = std::min(behind.size(), static_cast<size_t>(most));
  return {behind.begin(), behind.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace trimtab
