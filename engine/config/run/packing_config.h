// How the sequences of a run hold documents: whether attention is masked by document, and how long
// documents are expected to be.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace trimtab {

/// Which keys a query sees, beside what a model's windows hide.
enum class AttentionMask : uint8_t {
  kCausal,     // all before it in its sequence, whatever document they are of
  kDocuments,  // those before it in its document; positions begin anew with every document
};

/// "causal", "documents".
std::string_view Name(AttentionMask mask);

/// Documents of one length, and how many there are for each of another length.
struct DocumentLength {
  int64_t tokens = 0;
  double weight = 1;

  bool operator==(const DocumentLength&) const = default;
};

struct PackingConfig {
  AttentionMask mask = AttentionMask::kCausal;
  /// What a prediction takes documents to be, and synthetic tokens are made of. Empty: as long as
  /// the sequence, one to each.
  std::vector<DocumentLength> lengths{};

  bool masks_documents() const { return mask == AttentionMask::kDocuments; }
  /// Returns the share of the scores of causal attention over sequences of `sequence` tokens, each
  /// query seeing at most `window` keys (0 = all), that documents are expected to leave: sequences
  /// are cut anywhere out of documents in a row, whose lengths are drawn from `lengths`.
  double VisibleShare(int64_t sequence, int64_t window) const;
  bool operator==(const PackingConfig&) const = default;
};

/// Strict JSON: {"mask": "documents", "lengths": [{"tokens": 512, "weight": 3}, ...]}. `where`
/// prefixes error messages ("run.json: $.packing").
PackingConfig PackingConfigFromJson(const nlohmann::json& json, const std::string& where);
nlohmann::json ToJson(const PackingConfig& packing);

}  // namespace trimtab
