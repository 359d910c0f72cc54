#include "engine/data/tokenizer/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <utility>

#include "engine/base/error.h"
#include "engine/data/tokenizer/sentencepiece_pieces.h"
#include "engine/data/vocabulary/special_tokens.h"

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
  SentencePieceTokenizer(std::string content, const std::string& path, TokenizerConfig config,
                         std::vector<TokenizerFile> files)
      : files_(std::move(files)), config_(std::move(config)) {
    std::string model = content;
    MakeControlPieces(model,
                      [this](int32_t id, std::string_view piece) { return IsSpecial(id, piece); });
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!status.ok()) {
      throw InputError(fmt::format("{}: not a SentencePiece model, or a damaged one", path));
    }
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (processor_.IsControl(id)) names_.Add(processor_.IdToPiece(id), id);
      pieces_.push_back(BytesOfPiece(id));
    }
    for (const AddedToken& added : config_.added_tokens) Add(added);
    eod_ = processor_.eos_id();
    if (!config_.eos_token.empty()) eod_ = SpecialId(config_.eos_token).value_or(-1);
    if (eod_ < 0) {
      throw InputError(fmt::format("{}: expected a control token '{}', which ends a document", path,
                                   config_.eos_token.empty() ? "</s>" : config_.eos_token));
    }
    if (config_.eos_token.empty()) config_.eos_token = processor_.IdToPiece(eod_);
    if (!files_.empty()) return;
    files_ = {{"tokenizer.model", std::move(content)}, {kTokenizerConfigFile, ToJsonText(config_)}};
  }

  void Encode(std::string_view text, SpecialNames names,
              std::vector<int32_t>& tokens) const override {
    (names == SpecialNames::kTokens ? names_ : ordinary_names_)
        .Split(
            text, [&](std::string_view part) { EncodeText(part, tokens); },
            [&](int32_t token) { tokens.push_back(token); });
  }

  std::string Decode(std::span<const int32_t> tokens) const override {
    for (const int32_t token : tokens) {
      if (Names(token)) continue;
      throw InputError(
          fmt::format("token id {} is outside the vocabulary of {}", token, vocab_size()));
    }
    std::string text;
    std::vector<int> run;  // of pieces that the library knows
    const auto flush = [&] {
      std::string part;
      const auto status = processor_.Decode(std::exchange(run, {}), &part);
      TRIMTAB_ASSERT(status.ok(), "{}", status.ToString());
      text += part;
    };
    for (const int32_t token : tokens) {
      if (BytesOf(token).empty()) continue;
      if (token < processor_.GetPieceSize()) {
        run.push_back(token);
      } else {
        flush();
        text += BytesOf(token);
      }
    }
    flush();
    return text;
  }

  std::string BytesOf(int32_t token) const override {
    return Names(token) ? *pieces_[static_cast<size_t>(token)] : "";
  }

  std::optional<int32_t> SpecialId(std::string_view special) const override {
    const std::optional<int32_t> id = names_.Find(special);
    return id && pieces_[static_cast<size_t>(*id)]->empty() ? id : std::nullopt;
  }

  std::vector<int32_t> prompt_prefix() const override {
    const int32_t begin = SpecialId(config_.bos_token).value_or(processor_.bos_id());
    if (begin < 0 || !config_.add_bos_token.value_or(true)) return {};
    return {begin};
  }

  std::vector<std::string> special_names() const override {
    std::vector<std::string> names;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (processor_.IsControl(id)) names.push_back(processor_.IdToPiece(id));
    }
    for (const AddedToken& added : config_.added_tokens) {
      if (added.special && SpecialId(added.name)) names.push_back(added.name);
    }
    return names;
  }

  /// The model names the tokens that no file beside it does.
  ChatFormat chat_format() const override {
    TokenizerConfig config = config_;
    if (config.bos_token.empty() && processor_.bos_id() >= 0) {
      config.bos_token = processor_.IdToPiece(processor_.bos_id());
    }
    return ChatFormatOf(config);
  }

  int64_t vocab_size() const override { return std::ssize(pieces_); }
  int32_t eod_id() const override { return eod_; }
  std::string name() const override { return "sentencepiece"; }
  std::vector<TokenizerFile> files() const override { return files_; }

 private:
  void EncodeText(std::string_view text, std::vector<int32_t>& tokens) const {
    std::vector<int> ids;
    const auto status = processor_.Encode({text.data(), text.size()}, &ids);
    TRIMTAB_ASSERT(status.ok(), "{}", status.ToString());
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }

  /// Whether there is a token of this id.
  bool Names(int32_t token) const {
    return token >= 0 && token < vocab_size() && pieces_[static_cast<size_t>(token)].has_value();
  }

  /// Whether a piece that the model's maker defined stands for nothing in a text. Where nobody says
  /// it, its name does: "<end_of_turn>" and "<|im_end|>" are special, "<b>" is a tag in a text.
  bool IsSpecial(int32_t id, std::string_view piece) const {
    for (const AddedToken& added : config_.added_tokens) {
      if (added.id == id) return added.special;
    }
    return piece.starts_with('<') && piece.ends_with('>') &&
           piece.find_first_of("_|") != std::string_view::npos;
  }

  void Add(const AddedToken& added) {
    const auto place = static_cast<size_t>(added.id);
    const bool own = added.id < processor_.GetPieceSize();
    // The library finds its own names, and knows better what stands for what it does not know.
    if (own && (!added.special || processor_.IsUnknown(added.id) || processor_.IsByte(added.id))) {
      return;
    }
    if (place >= pieces_.size()) pieces_.resize(place + 1);
    pieces_[place] = added.special ? "" : added.name;
    names_.Add(added.name, added.id, added.rules);
    if (!added.special) ordinary_names_.Add(added.name, added.id, added.rules);
  }

  /// What a piece adds to a text before it.
  std::string BytesOfPiece(int id) const {
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

  std::vector<TokenizerFile> files_;
  TokenizerConfig config_;
  SentencePieceProcessor processor_;
  SpecialTokens names_;           // of special tokens, and of others that the library does not know
  SpecialTokens ordinary_names_;  // of the latter alone
  std::vector<std::optional<std::string>> pieces_;  // by id; nothing where an id is not used
  int32_t eod_ = 0;
};

}  // namespace

std::unique_ptr<Tokenizer> MakeSentencePieceTokenizer(std::string content, const std::string& path,
                                                      TokenizerConfig config,
                                                      std::vector<TokenizerFile> files) {
  return std::make_unique<SentencePieceTokenizer>(std::move(content), path, std::move(config),
                                                  std::move(files));
}

}  // namespace trimtab
