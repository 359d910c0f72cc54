#include "engine/data/tokenizer/hugging_face_tokenizer.h"

#include <utility>

#include "engine/base/error.h"
#include "engine/data/vocabulary/hugging_face_vocabulary.h"
#include "engine/data/vocabulary/token_decoder.h"

namespace trimtab {
namespace {

class HuggingFaceTokenizer : public Tokenizer {
 public:
  HuggingFaceTokenizer(std::string content, HuggingFaceVocabulary vocabulary,
                       TokenizerConfig config, std::vector<TokenizerFile> files)
      : files_(std::move(files)),
        vocabulary_(std::move(vocabulary)),
        config_(std::move(config)),
        eod_(*vocabulary_.SpecialId(config_.eos_token)) {
    if (!files_.empty()) return;
    files_ = {{"tokenizer.json", std::move(content)}, {kTokenizerConfigFile, ToJsonText(config_)}};
  }

  void Encode(std::string_view text, SpecialNames names,
              std::vector<int32_t>& tokens) const override {
    const auto finder = [names](const HuggingFaceVocabulary::Added& added) -> const SpecialTokens& {
      return names == SpecialNames::kTokens ? added.all : added.not_special;
    };
    const auto add = [&tokens](int32_t token) { tokens.push_back(token); };
    const auto encode = [&](std::string_view word) { vocabulary_.model->Encode(word, tokens); };
    finder(vocabulary_.before_normalizing)
        .Split(
            text,
            [&](std::string_view part) {
              const bool first = part.data() == text.data();
              const std::string normal = vocabulary_.normalizer.Apply(part);
              finder(vocabulary_.after_normalizing)
                  .Split(
                      normal,
                      [&](std::string_view run) {
                        vocabulary_.pre_tokenizer.Split(run, first && run.data() == normal.data(),
                                                        encode);
                      },
                      add);
            },
            add);
  }

  std::string Decode(std::span<const int32_t> tokens) const override {
    std::string text;
    bool first = true;
    for (const int32_t id : tokens) {
      const HuggingFaceVocabulary::Token* token = Find(id);
      if (token == nullptr) {
        throw InputError(
            fmt::format("token id {} names no token of the vocabulary of {}", id, vocab_size()));
      }
      if (token->special) continue;
      text += first ? token->first_bytes : token->bytes;
      first = false;
    }
    vocabulary_.decoder->Trim(text);
    return text;
  }

  std::string BytesOf(int32_t id) const override {
    const HuggingFaceVocabulary::Token* token = Find(id);
    return token == nullptr ? "" : token->bytes;
  }

  std::optional<int32_t> SpecialId(std::string_view special) const override {
    return vocabulary_.SpecialId(special);
  }
  std::vector<int32_t> prompt_prefix() const override { return vocabulary_.prompt_prefix; }
  std::vector<std::string> special_names() const override { return vocabulary_.special_names; }
  ChatFormat chat_format() const override { return ChatFormatOf(config_); }
  int64_t vocab_size() const override { return std::ssize(vocabulary_.tokens); }
  int32_t eod_id() const override { return eod_; }
  std::string name() const override { return "hugging-face"; }
  std::vector<TokenizerFile> files() const override { return files_; }

 private:
  /// The token of this id; null where there is none.
  const HuggingFaceVocabulary::Token* Find(int32_t id) const {
    if (id < 0 || id >= vocab_size()) return nullptr;
    const auto& token = vocabulary_.tokens[static_cast<size_t>(id)];
    return token ? &*token : nullptr;
  }

  std::vector<TokenizerFile> files_;
  HuggingFaceVocabulary vocabulary_;
  TokenizerConfig config_;
  int32_t eod_ = 0;
};

/// The name of the special token that ends a document.
std::string EndOfDocument(const HuggingFaceVocabulary& vocabulary, const std::string& path,
                          const std::string& name) {
  if (!name.empty()) {
    if (vocabulary.SpecialId(name)) return name;
    throw InputError(fmt::format(
        "{}: $.added_tokens: expected a special token '{}', which ends a document", path, name));
  }
  if (vocabulary.special_names.size() == 1) return vocabulary.special_names.front();
  throw InputError(fmt::format(
      "{}: $.added_tokens: {} special tokens; which of them ends a document must stand as "
      "'eos_token' in a {} beside it",
      path, vocabulary.special_names.size(), kTokenizerConfigFile));
}

/// What every prompt begins with. Where the file itself does not say it, its reader may be one that
/// knows it from `add_bos_token`.
std::vector<int32_t> PromptPrefix(const HuggingFaceVocabulary& vocabulary, const std::string& path,
                                  const TokenizerConfig& config) {
  if (!config.add_bos_token) return vocabulary.prompt_prefix;
  if (!*config.add_bos_token) return {};
  if (!vocabulary.prompt_prefix.empty() || config.bos_token.empty()) {
    return vocabulary.prompt_prefix;
  }
  if (const auto id = vocabulary.SpecialId(config.bos_token)) return {*id};
  throw InputError(
      fmt::format("{}: $.added_tokens: expected a special token '{}', which begins a text", path,
                  config.bos_token));
}

}  // namespace

std::unique_ptr<Tokenizer> MakeHuggingFaceTokenizer(std::string content, const std::string& path,
                                                    TokenizerConfig config, int64_t most_ids,
                                                    std::vector<TokenizerFile> files) {
  HuggingFaceVocabulary vocabulary = ReadHuggingFaceVocabulary(content, path, config, most_ids);
  WarnOfLeftOut(vocabulary.left_out, path, most_ids);
  config.eos_token = EndOfDocument(vocabulary, path, config.eos_token);
  vocabulary.prompt_prefix = PromptPrefix(vocabulary, path, config);
  return std::make_unique<HuggingFaceTokenizer>(std::move(content), std::move(vocabulary),
                                                std::move(config), std::move(files));
}

}  // namespace trimtab
