// Tokenizer: text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trimtab {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Appends the ids of `text` to `tokens`, without an end-of-document id.
  virtual void Encode(std::string_view text, std::vector<int32_t>& tokens) const = 0;
  /// The text of `tokens`; the end-of-document id stands for nothing.
  /// Throws InputError for an id outside [0, vocab_size()).
  virtual std::string Decode(std::span<const int32_t> tokens) const = 0;

  virtual int64_t vocab_size() const = 0;
  /// The id that ends every document.
  virtual int32_t eod_id() const = 0;
  /// As stored with a dataset: "byte".
  virtual std::string name() const = 0;
};

/// One token per byte, ids 0..255, and 256 at the end of a document: a vocabulary of 257.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

}  // namespace trimtab
