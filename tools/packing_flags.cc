#include "tools/packing_flags.h"

#include <fmt/format.h>

#include <charconv>

#include "engine/base/error.h"
#include "engine/config/model_limits.h"

namespace trimtab {
namespace {

/// Reads all of `text` as a number from `least` on.
template <typename Number>
bool ReadNumber(const std::string& text, Number least, Number& value) {
  const char* end = text.data() + text.size();
  const auto [read, fault] = std::from_chars(text.data(), end, value);
  return fault == std::errc() && read == end && value >= least;
}

DocumentLength ParseLength(const std::string& text) {
  const size_t colon = text.find(':');
  DocumentLength length;
  const bool weighted = colon != std::string::npos;
  if (!ReadNumber<int64_t>(text.substr(0, colon), 1, length.tokens) ||
      length.tokens > kMaxSequence ||
      (weighted && (!ReadNumber<double>(text.substr(colon + 1), 0.0, length.weight) ||
                    !(length.weight > 0 && length.weight <= 1e12)))) {
    throw UsageError(fmt::format(
        "--document-lengths: '{}'; expected TOKENS or TOKENS:WEIGHT, as 512:3,2048:1", text));
  }
  return length;
}

}  // namespace

void PackingFlags::Declare(FlagSet& flags) {
  flags.Choice("--mask", mask, {"causal", "documents"},
               "attend in the sequence or in each document [causal, or the run's]");
  flags.List("--document-lengths TOKENS:WEIGHT,...", lengths,
             {"expected documents [the sequence, or the run's]",
              "For predictions of --mask documents: 512:3,2048:1 are three documents of 512 tokens "
              "to each of 2,048."});
}

void PackingFlags::Apply(PackingConfig& packing) const {
  for (const AttentionMask each : {AttentionMask::kCausal, AttentionMask::kDocuments}) {
    if (mask == Name(each)) packing.mask = each;
  }
  if (lengths.empty()) return;
  packing.lengths.clear();
  for (const std::string& each : lengths) packing.lengths.push_back(ParseLength(each));
}

}  // namespace trimtab
