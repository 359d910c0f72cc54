#include "engine/config/run/packing_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"
#include "engine/config/model/model_limits.h"

namespace trimtab {
namespace {

constexpr double kMaxWeight = 1e12;
constexpr std::array<Named<AttentionMask>, 2> kMaskNames = {
    {{AttentionMask::kCausal, "causal"}, {AttentionMask::kDocuments, "documents"}}};

/// Returns the sum over c from 1 to `n` of the keys, c at most, that the queries of a document of
/// `length` tokens see together.
double SumOfKeys(double length, double n) {
  const double m = std::min(n, length);
  // For c keys at most: c * length - c (c - 1) / 2, and length (length + 1) / 2 from length on.
  return length * m * (m + 1) / 2 - (m - 1) * m * (m + 1) / 6 + (n - m) * length * (length + 1) / 2;
}

/// Returns the keys, `most` at most each, that the queries of a document see together.
double KeysOf(double length, double most) {
  const double m = std::min(most, length);
  return length * m - m * (m - 1) / 2;
}

}  // namespace

std::string_view Name(AttentionMask mask) { return NameIn(kMaskNames, mask); }

double PackingConfig::VisibleShare(int64_t sequence, int64_t window) const {
  if (!masks_documents() || lengths.empty()) return 1;
  const auto tokens = static_cast<double>(sequence);
  const auto most = static_cast<double>(window > 0 ? std::min(window, sequence) : sequence);
  double all_tokens = 0;
  double sum = 0;
  for (const DocumentLength& each : lengths) {
    const auto length = static_cast<double>(each.tokens);
    all_tokens += each.weight * length;
    // The query at offset t sees t + 1 keys at most, and no more than the window holds.
    sum += each.weight * (SumOfKeys(length, most) + (tokens - most) * KeysOf(length, most));
  }
  const double causal = most * (most + 1) / 2 + (tokens - most) * most;
  return sum / all_tokens / causal;
}

PackingConfig PackingConfigFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  PackingConfig packing;
  object.Choice("mask", packing.mask, kMaskNames);
  if (const nlohmann::json* lengths = object.Find("lengths")) {
    if (!lengths->is_array()) object.Refuse("lengths", "an array of lengths of documents");
    for (const nlohmann::json& each : *lengths) {
      StrictObject entry(each,
                         fmt::format("{}[{}]", object.Where("lengths"), packing.lengths.size()));
      DocumentLength length;
      entry.Integer("tokens", length.tokens, 1, kMaxSequence, Need::kRequired);
      entry.Number("weight", length.weight, 1 / kMaxWeight, kMaxWeight);
      entry.Finish();
      packing.lengths.push_back(length);
    }
  }
  object.Finish();
  return packing;
}

nlohmann::json ToJson(const PackingConfig& packing) {
  nlohmann::json lengths = nlohmann::json::array();
  for (const DocumentLength& each : packing.lengths) {
    lengths.push_back({{"tokens", each.tokens}, {"weight", each.weight}});
  }
  return {{"mask", Name(packing.mask)}, {"lengths", lengths}};
}

}  // namespace trimtab
