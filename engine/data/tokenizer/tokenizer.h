// Tokenizer: text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trimtab {

/// What the names of special tokens ("<|endoftext|>") are, where they stand in a text.
enum class SpecialNames {
  kText,    // characters like any others: a document or a message cannot forge a token
  kTokens,  // the tokens: for prompts whose writer may say everything
};

/// A file that describes a tokenizer, as OpenTokenizer finds it in a folder.
struct TokenizerFile {
  std::string name;
  std::string content;
};

/// How conversations are written, as the files beside a vocabulary say it.
struct ChatFormat {
  /// Jinja templates by name: "default", "tool_use".
  std::vector<std::pair<std::string, std::string>> templates{};
  /// Texts of special tokens by the names that templates give them: "bos_token".
  std::vector<std::pair<std::string, std::string>> tokens{};

  bool operator==(const ChatFormat&) const = default;
};

/// Safe to use from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Appends the ids of `text` to `tokens`, without an end-of-document id. Takes any bytes.
  virtual void Encode(std::string_view text, SpecialNames names,
                      std::vector<int32_t>& tokens) const = 0;
  void Encode(std::string_view text, std::vector<int32_t>& tokens) const {
    Encode(text, SpecialNames::kText, tokens);
  }
  /// The text of `tokens`; special tokens stand for nothing.
  /// Throws InputError for an id that names no token.
  virtual std::string Decode(std::span<const int32_t> tokens) const = 0;
  /// The bytes that `token` adds to a text before it: perhaps only a part of a character. None for
  /// an id that names no token, as a model may sample it: it may have more rows than its vocabulary
  /// has tokens, and ids of that may be unused.
  virtual std::string BytesOf(int32_t token) const = 0;

  /// The id of the special token of this name.
  virtual std::optional<int32_t> SpecialId(std::string_view name) const = 0;
  /// The names of all special tokens.
  virtual std::vector<std::string> special_names() const = 0;
  /// What every prompt begins with: the id that begins a text, where the vocabulary has one.
  virtual std::vector<int32_t> prompt_prefix() const = 0;

  virtual int64_t vocab_size() const = 0;
  /// The id that ends every document.
  virtual int32_t eod_id() const = 0;
  /// How conversations with its model are written.
  virtual ChatFormat chat_format() const = 0;
  /// The kind, as stored with a dataset: "byte", "hugging-face", "sentencepiece".
  virtual std::string name() const = 0;
  /// What describes it: OpenTokenizer makes the same ids of a folder with these files.
  virtual std::vector<TokenizerFile> files() const = 0;
};

/// One token per byte, ids 0..255, and 256 at the end of a document: a vocabulary of 257. Its file
/// is a tokenizer.json that Hugging Face's tokenizers read too.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

}  // namespace trimtab
