#include "engine/data/vocabulary/gpt2_files.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"
#include "engine/data/tokenizer/byte_alphabet.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The lines of merges.txt, of which the first may say a version.
json MergesOf(std::string_view text) {
  json merges = json::array();
  bool first = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool version = first && line.starts_with("#version");
    first = false;
    if (!line.empty() && !version) merges.push_back(line);
  }
  return merges;
}

json ByteLevel(bool space_first, bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", space_first}, {"use_regex", use_regex}};
}

/// Adds how words are found, which these files do not say themselves.
void AddRulesOf(const TokenizerConfig& config, const std::string& vocab_path, json& root) {
  std::string name = config.tokenizer_class;
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  if (name == "Qwen2Tokenizer") {
    root["normalizer"] = {{"type", "NFC"}};
    const json split = {{"type", "Split"},
                        {"pattern", {{"Regex", kQwen2Pattern}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    root["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers", {split, ByteLevel(config.add_prefix_space, false)}}};
    return;
  }
  for (const char* known : {"", "GPT2Tokenizer", "CodeGenTokenizer", "GPTNeoXTokenizer"}) {
    if (name == known) {
      root["pre_tokenizer"] = ByteLevel(config.add_prefix_space, true);
      return;
    }
  }
  throw InputError(fmt::format(
      "{}: words as {} finds them; expected GPT2Tokenizer, CodeGenTokenizer, "
      "GPTNeoXTokenizer or Qwen2Tokenizer, or a tokenizer.json beside it, which is read "
      "instead",
      vocab_path, config.tokenizer_class));
}

}  // namespace

std::string TokenizerJsonOf(const std::string& vocab, const std::string& vocab_path,
                            const std::string& merges, const std::string& merges_path,
                            const TokenizerConfig& config) {
  const json tokens = ParseJsonText(vocab, vocab_path);
  if (!tokens.is_object()) {
    throw InputError(fmt::format("{}: $: expected an object of tokens and ids, got {}", vocab_path,
                                 DescribeJson(tokens)));
  }
  const json pairs = MergesOf(merges);
  std::set<std::string> made;
  for (int byte = 0; byte < 256; ++byte) made.insert(ByteCharacter(static_cast<uint8_t>(byte)));
  for (const json& pair : pairs) {
    std::string token = pair.get<std::string>();
    const size_t blank = token.find(' ');
    if (blank == std::string::npos) {
      throw InputError(fmt::format("{}: '{}'; expected two tokens a line", merges_path, token));
    }
    made.insert(token.erase(blank, 1));
  }
  json added = json::array();
  for (const auto& [token, id] : tokens.items()) {
    if (made.contains(token)) continue;
    added.push_back({{"id", id}, {"content", token}, {"normalized", false}, {"special", true}});
  }
  json root = {{"added_tokens", added},
               {"decoder", ByteLevel(false, true)},
               {"model", {{"type", "BPE"}, {"vocab", tokens}, {"merges", pairs}}}};
  AddRulesOf(config, vocab_path, root);
  return root.dump(1) + "\n";
}

}  // namespace trimtab
