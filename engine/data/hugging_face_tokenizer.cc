#include "engine/data/hugging_face_tokenizer.h"

#include <unordered_map>
#include <utility>

#include "engine/base/error.h"
#include "engine/data/byte_alphabet.h"
#include "engine/data/hugging_face_vocabulary.h"

namespace trimtab {
namespace {

class HuggingFaceTokenizer : public Tokenizer {
 public:
  HuggingFaceTokenizer(std::string content, HuggingFaceVocabulary vocabulary,
                       TokenizerConfig config)
      : content_(std::move(content)),
        vocabulary_(std::move(vocabulary)),
        config_(std::move(config)),
        eod_(*vocabulary_.SpecialId(config_.eos_token)) {
    if (!vocabulary_.whole_words_first) return;
    for (size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
      if (vocabulary_.tokens[id] && !vocabulary_.special[id]) {
        words_.emplace(*vocabulary_.tokens[id], static_cast<int32_t>(id));
      }
    }
  }

  void Encode(std::string_view text, SpecialNames names,
              std::vector<int32_t>& tokens) const override {
    const auto finder = [names](const HuggingFaceVocabulary::Added& added) -> const SpecialTokens& {
      return names == SpecialNames::kTokens ? added.all : added.not_special;
    };
    const auto add = [&tokens](int32_t token) { tokens.push_back(token); };
    finder(vocabulary_.before_normalizing)
        .Split(
            text,
            [&](std::string_view part) {
              std::string normal;
              for (const NormalForm form : vocabulary_.normal_forms) {
                normal = Normalize(part, form);
                part = normal;
              }
              finder(vocabulary_.after_normalizing)
                  .Split(
                      part, [&](std::string_view run) { SplitOn(0, run, tokens); }, add);
            },
            add);
  }

  std::string Decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t token : tokens) {
      if (!Names(token)) {
        throw InputError(
            fmt::format("token id {} names no token of the vocabulary of {}", token, vocab_size()));
      }
      text += BytesOf(token);
    }
    return text;
  }

  std::string BytesOf(int32_t token) const override {
    if (!Names(token) || vocabulary_.special[static_cast<size_t>(token)]) return "";
    return *vocabulary_.tokens[static_cast<size_t>(token)];
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
  std::vector<TokenizerFile> files() const override {
    return {{"tokenizer.json", content_}, {kTokenizerConfigFile, ToJsonText(config_)}};
  }

 private:
  /// Whether there is a token of this id.
  bool Names(int32_t token) const {
    return token >= 0 && token < vocab_size() &&
           vocabulary_.tokens[static_cast<size_t>(token)].has_value();
  }

  /// Steps from `step` on, then the words.
  void SplitOn(size_t step, std::string_view part, std::vector<int32_t>& tokens) const {
    if (step == vocabulary_.steps.size()) {
      EncodeWord(part, tokens);
      return;
    }
    const SplitStep& split = vocabulary_.steps[step];
    std::string with_space;
    if (split.space_first && !part.starts_with(' ')) {
      with_space.assign(1, ' ').append(part);
      part = with_space;
    }
    std::string characters;
    if (split.over_bytes) {
      for (const char c : part) characters += ByteCharacter(static_cast<uint8_t>(c));
      part = characters;
    }
    split.pattern.Split(part, [&](std::string_view piece, bool matches) {
      if (!(matches ? split.keep_matches : split.keep_gaps)) return;
      if (split.over_bytes) {
        SplitOn(step + 1, *BytesOfToken(piece), tokens);
      } else {
        SplitOn(step + 1, piece, tokens);
      }
    });
  }

  void EncodeWord(std::string_view word, std::vector<int32_t>& tokens) const {
    if (vocabulary_.whole_words_first) {
      const auto found = words_.find(word);
      if (found != words_.end()) {
        tokens.push_back(found->second);
        return;
      }
    }
    std::vector<int32_t> symbols;
    symbols.reserve(word.size());
    for (const char c : word) {
      symbols.push_back(vocabulary_.byte_ids[static_cast<unsigned char>(c)]);
    }
    vocabulary_.merges.Merge(symbols);
    tokens.insert(tokens.end(), symbols.begin(), symbols.end());
  }

  std::string content_;
  HuggingFaceVocabulary vocabulary_;
  TokenizerConfig config_;
  int32_t eod_ = 0;
  std::unordered_map<std::string_view, int32_t> words_;  // into vocabulary_
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
                                                    TokenizerConfig config, int64_t most_ids) {
  HuggingFaceVocabulary vocabulary = ReadHuggingFaceVocabulary(content, path, most_ids);
  WarnOfLeftOut(vocabulary.left_out, path, most_ids);
  config.eos_token = EndOfDocument(vocabulary, path, config.eos_token);
  config.added_tokens.clear();  // the vocabulary says them itself
  vocabulary.prompt_prefix = PromptPrefix(vocabulary, path, config);
  return std::make_unique<HuggingFaceTokenizer>(std::move(content), std::move(vocabulary),
                                                std::move(config));
}

}  // namespace trimtab
