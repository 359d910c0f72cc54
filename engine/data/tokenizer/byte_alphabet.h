// The alphabet of byte-level vocabularies: a printable character for each byte, as GPT-2 chose
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trimtab {

/// The character for `byte`, in UTF-8: itself where it is printable in Latin-1, else one of the
/// characters from U+0100 on.
std::string ByteCharacter(uint8_t byte);

/// The bytes that `token` stands for; nothing if it has a character outside the alphabet.
std::optional<std::string> BytesOfToken(std::string_view token);

}  // namespace trimtab
