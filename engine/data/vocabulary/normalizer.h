// What a tokenizer.json does to a text before it is cut into words: its `normalizer`.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace trimtab {

class Normalizer {
 public:
  /// Changes nothing.
  Normalizer() = default;
  /// Reads a `normalizer`; null changes nothing. Throws InputError with the JSON path of what is
  /// not understood.
  Normalizer(const nlohmann::json& normalizer, const std::string& where);

  std::string Apply(std::string_view text) const;
  bool empty() const { return steps_.empty(); }

  /// True if the text becomes a character for each byte (byte_alphabet.h). `Apply` leaves that to
  /// the words' reader.
  bool byte_level() const { return byte_level_; }

 private:
  void Read(const nlohmann::json& step, const std::string& where);
  void ReadReplace(const nlohmann::json& step, const std::string& where);

  std::vector<std::function<std::string(std::string_view)>> steps_;
  bool byte_level_ = false;
};

}  // namespace trimtab
