// What a tokenizer.json makes of tokens: its `decoder`.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace trimtab {

class TokenDecoder {
 public:
  /// Reads a `decoder`. Throws InputError with the JSON path of what is not understood.
  TokenDecoder(const nlohmann::json& decoder, const std::string& where);

  /// True if tokens are written in characters for bytes (byte_alphabet.h).
  bool byte_level() const { return byte_level_; }

  /// Returns the bytes that the token that is written as `token` adds to a text before it.
  std::string BytesOf(std::string_view token) const;
  /// Returns those of a text's first token.
  std::string FirstBytesOf(std::string_view token) const;
  /// Takes from both ends of a whole text what encoding it put there.
  void Trim(std::string& text) const;

 private:
  using Step = std::function<std::string(std::string_view token, bool first)>;
  void Read(const nlohmann::json& step, const std::string& where);
  void ReadReplace(const nlohmann::json& step, const std::string& where);
  void ReadStrip(const nlohmann::json& step, const std::string& where);

  std::vector<Step> steps_;
  bool byte_level_ = false;
  bool fused_ = false;   // `Fuse` has come: what follows sees the whole text
  std::string trimmed_;  // the character that is taken from the ends, so often at most
  int64_t trim_begin_ = 0;
  int64_t trim_end_ = 0;
};

}  // namespace trimtab
