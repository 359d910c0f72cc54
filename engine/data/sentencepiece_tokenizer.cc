#include "engine/data/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <utility>

#include "engine/base/error.h"
#include "engine/data/special_tokens.h"

namespace trimtab {
namespace {

using sentencepiece::SentencePieceProcessor;

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, how pieces write a space

/// The byte that a piece "<0x0A>" stands for.
char ByteOfPiece(const std::string& piece) {
  return static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string content, const std::string& path, TokenizerConfig config)
      : content_(std::move(content)), config_(std::move(config)) {
    const auto status = processor_.LoadFromSerializedProto(content_);
    if (!status.ok()) {
      throw InputError(fmt::format("{}: not a SentencePiece model, or a damaged one", path));
    }
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (processor_.IsControl(id)) special_.Add(processor_.IdToPiece(id), id);
      pieces_.push_back(BytesOf(id));
    }
    eod_ = processor_.eos_id();
    if (!config_.eos_token.empty()) eod_ = special_.Find(config_.eos_token).value_or(-1);
    if (eod_ < 0) {
      throw InputError(fmt::format("{}: expected a control token '{}', which ends a document", path,
                                   config_.eos_token.empty() ? "</s>" : config_.eos_token));
    }
    config_.eos_token = processor_.IdToPiece(eod_);
  }

  void Encode(std::string_view text, SpecialNames names,
              std::vector<int32_t>& tokens) const override {
    if (names == SpecialNames::kText) {
      EncodeText(text, tokens);
      return;
    }
    special_.Split(
        text, [&](std::string_view part) { EncodeText(part, tokens); },
        [&](int32_t token) { tokens.push_back(token); });
  }

  std::string Decode(std::span<const int32_t> tokens) const override {
    for (const int32_t token : tokens) Check(token);
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(tokens.begin(), tokens.end()), &text);
    TRIMTAB_ASSERT(status.ok(), "{}", status.ToString());
    return text;
  }

  void AppendBytes(int32_t token, std::string& text) const override {
    Check(token);
    text += pieces_[static_cast<size_t>(token)];
  }

  std::optional<int32_t> SpecialId(std::string_view special) const override {
    return special_.Find(special);
  }

  std::vector<int32_t> prompt_prefix() const override {
    const int32_t begin = processor_.bos_id();
    if (begin < 0 || !config_.add_bos_token.value_or(true)) return {};
    return {begin};
  }

  std::string chat_template() const override { return config_.chat_template; }
  int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  int32_t eod_id() const override { return eod_; }
  std::string name() const override { return "sentencepiece"; }
  std::vector<TokenizerFile> files() const override {
    return {{"tokenizer.model", content_}, {kTokenizerConfigFile, ToJsonText(config_)}};
  }

 private:
  void EncodeText(std::string_view text, std::vector<int32_t>& tokens) const {
    std::vector<int> ids;
    const auto status = processor_.Encode({text.data(), text.size()}, &ids);
    TRIMTAB_ASSERT(status.ok(), "{}", status.ToString());
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }

  void Check(int32_t token) const {
    if (token >= 0 && token < processor_.GetPieceSize()) return;
    throw InputError(fmt::format("token id {} is outside the vocabulary of {}", token,
                                 processor_.GetPieceSize()));
  }

  /// What a piece adds to a text before it.
  std::string BytesOf(int id) const {
    if (processor_.IsControl(id)) return "";
    const std::string& piece = processor_.IdToPiece(id);
    if (processor_.IsByte(id)) return {ByteOfPiece(piece)};
    if (processor_.IsUnknown(id)) return " \xE2\x81\x87 ";  // U+2047, as SentencePiece decodes it
    std::string bytes;
    for (size_t i = 0; i < piece.size();) {
      const bool space = std::string_view(piece).substr(i).starts_with(kSpace);
      bytes += space ? ' ' : piece[i];
      i += space ? kSpace.size() : 1;
    }
    return bytes;
  }

  std::string content_;
  TokenizerConfig config_;
  SentencePieceProcessor processor_;
  SpecialTokens special_;
  std::vector<std::string> pieces_;  // by id
  int32_t eod_ = 0;
};

}  // namespace

std::unique_ptr<Tokenizer> MakeSentencePieceTokenizer(std::string content, const std::string& path,
                                                      TokenizerConfig config) {
  return std::make_unique<SentencePieceTokenizer>(std::move(content), path, std::move(config));
}

}  // namespace trimtab
