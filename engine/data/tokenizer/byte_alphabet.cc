#include "engine/data/tokenizer/byte_alphabet.h"

#include <array>

namespace trimtab {
namespace {

constexpr int kLastCode = 0x143;  // 68 bytes are not printable

constexpr bool IsPrintable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint16_t, 256> code{};
  std::array<int16_t, kLastCode + 1> byte{};
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.byte) byte = -1;
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const uint16_t code = IsPrintable(byte) ? static_cast<uint16_t>(byte) : next++;
    alphabet.code[static_cast<size_t>(byte)] = code;
    alphabet.byte[code] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::string ByteCharacter(uint8_t byte) {
  const uint16_t code = kAlphabet.code[byte];
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

std::optional<std::string> BytesOfToken(std::string_view token) {
  std::string bytes;
  for (size_t i = 0; i < token.size(); ++i) {
    int code = static_cast<unsigned char>(token[i]);
    if (code >= 0x80) {
      // Two bytes: the alphabet ends before U+0800.
      if (code < 0xC2 || code > 0xDF || i + 1 == token.size()) return std::nullopt;
      code = (code & 0x1F) << 6 | (static_cast<unsigned char>(token[++i]) & 0x3F);
    }
    if (code > kLastCode || kAlphabet.byte[static_cast<size_t>(code)] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte[static_cast<size_t>(code)]));
  }
  return bytes;
}

}  // namespace trimtab
