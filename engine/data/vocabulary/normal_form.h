// Unicode's normal forms.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trimtab {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

/// The form of this name ("NFC").
std::optional<NormalForm> NormalFormOf(std::string_view name);

/// `text` in a normal form of Unicode Standard Annex 15; as it is where it is not UTF-8.
std::string Normalize(std::string_view text, NormalForm form);

}  // namespace trimtab
