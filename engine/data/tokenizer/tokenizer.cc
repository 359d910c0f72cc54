#include "engine/data/tokenizer/tokenizer.h"

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/data/tokenizer/byte_alphabet.h"

namespace trimtab {
namespace {

constexpr int32_t kByteCount = 256;
constexpr std::string_view kEndOfDocument = "<|endoftext|>";

class ByteTokenizer : public Tokenizer {
 public:
  void Encode(std::string_view text, SpecialNames names,
              std::vector<int32_t>& tokens) const override {
    tokens.reserve(tokens.size() + text.size());
    while (names == SpecialNames::kTokens) {
      const size_t found = text.find(kEndOfDocument);
      if (found == std::string_view::npos) break;
      Encode(text.substr(0, found), SpecialNames::kText, tokens);
      tokens.push_back(eod_id());
      text.remove_prefix(found + kEndOfDocument.size());
    }
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  }

  std::string Decode(std::span<const int32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (const int32_t token : tokens) {
      if (token < 0 || token > eod_id()) {
        throw InputError(fmt::format("token id {} is outside the byte tokenizer's vocabulary of {}",
                                     token, vocab_size()));
      }
      if (token != eod_id()) text.push_back(static_cast<char>(token));
    }
    return text;
  }

  std::string BytesOf(int32_t token) const override {
    return token >= 0 && token < kByteCount ? std::string(1, static_cast<char>(token)) : "";
  }

  std::optional<int32_t> SpecialId(std::string_view special) const override {
    if (special == kEndOfDocument) return eod_id();
    return std::nullopt;
  }

  std::vector<int32_t> prompt_prefix() const override { return {}; }
  int64_t vocab_size() const override { return kByteCount + 1; }
  int32_t eod_id() const override { return kByteCount; }
  std::vector<std::string> special_names() const override { return {std::string(kEndOfDocument)}; }
  ChatFormat chat_format() const override { return {}; }
  std::string name() const override { return "byte"; }

  std::vector<TokenizerFile> files() const override {
    nlohmann::json vocab = nlohmann::json::object();
    for (int byte = 0; byte < kByteCount; ++byte) {
      vocab[ByteCharacter(static_cast<uint8_t>(byte))] = byte;
    }
    const nlohmann::json byte_level = {{"type", "ByteLevel"},
                                       {"add_prefix_space", false},
                                       {"trim_offsets", true},
                                       {"use_regex", false}};
    const nlohmann::json end = {
        {"id", eod_id()},  {"content", kEndOfDocument}, {"single_word", false}, {"lstrip", false},
        {"rstrip", false}, {"normalized", false},       {"special", true}};
    const nlohmann::json json = {{"version", "1.0"},
                                 {"truncation", nullptr},
                                 {"padding", nullptr},
                                 {"added_tokens", {end}},
                                 {"normalizer", nullptr},
                                 {"pre_tokenizer", byte_level},
                                 {"post_processor", nullptr},
                                 {"decoder", byte_level},
                                 {"model",
                                  {{"type", "BPE"},
                                   {"dropout", nullptr},
                                   {"unk_token", nullptr},
                                   {"continuing_subword_prefix", nullptr},
                                   {"end_of_word_suffix", nullptr},
                                   {"fuse_unk", false},
                                   {"byte_fallback", false},
                                   {"vocab", vocab},
                                   {"merges", nlohmann::json::array()}}}};
    return {{"tokenizer.json", json.dump(1) + "\n"}};
  }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace trimtab
