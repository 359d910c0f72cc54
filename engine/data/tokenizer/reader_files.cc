#include "engine/data/tokenizer/reader_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/config/json/strict_json.h"
#include "engine/data/tokenizer/end_tokens.h"
#include "engine/data/tokenizer/open_tokenizer.h"
#include "engine/data/tokenizer/tokenizer_config.h"

namespace trimtab {
namespace {

using nlohmann::json;

/// What transformers writes for a length without a limit.
constexpr double kNoLimit = 1e30;

/// The JSON of a file in the folder; null where it is not there.
json ReadIfThere(const std::string& folder, const char* name) {
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return nullptr;
  return ReadJsonFile(path.string());
}

json TokenIdsIn(const json& config) {
  json ids = json::object();
  if (!config.is_object()) return ids;
  for (const auto& [key, value] : config.items()) {
    if (key.ends_with("_token_id") && !value.is_null()) ids[key] = value;
  }
  return ids;
}

/// The added tokens of a tokenizer.json, by id, as tokenizer_config.json has them.
json AddedTokensOf(const json& vocabulary) {
  json added = json::object();
  if (!vocabulary.is_object() || !vocabulary.contains("added_tokens")) return added;
  for (json token : vocabulary["added_tokens"]) {
    const std::string id = token["id"].dump();
    token.erase("id");
    added[id] = std::move(token);
  }
  return added;
}

/// The name of a token that is in `added`, or that SentencePiece calls so.
std::optional<std::string> NameOf(int32_t id, const json& added, const Tokenizer& tokenizer) {
  const auto found = added.find(std::to_string(id));
  if (found != added.end()) return (*found)["content"].get<std::string>();
  for (const char* name : {"</s>", "<s>", "<eos>", "<bos>", "<|endoftext|>"}) {
    if (tokenizer.SpecialId(name) == id) return name;
  }
  return std::nullopt;
}

/// The class of transformers that reads the vocabulary as it is.
const char* ClassOf(const std::vector<TokenizerFile>& files) {
  const auto has = [&](const char* name) {
    return std::ranges::find(files, name, &TokenizerFile::name) != files.end();
  };
  if (has("tokenizer.json")) return "PreTrainedTokenizerFast";
  return has("tokenizer.model") ? "LlamaTokenizer" : "GPT2Tokenizer";
}

std::string TokenizerConfigOf(const std::string& folder, int64_t most_tokens) {
  const auto tokenizer = OpenTokenizer(folder);
  const json vocabulary = ReadIfThere(folder, "tokenizer.json");
  const json added = AddedTokensOf(vocabulary);
  json config = {{"tokenizer_class", ClassOf(tokenizer->files())},
                 {"clean_up_tokenization_spaces", false}};
  config["model_max_length"] = most_tokens > 0 ? json(most_tokens) : json(kNoLimit);
  if (!added.empty()) config["added_tokens_decoder"] = added;
  if (const auto end = NameOf(tokenizer->eod_id(), added, *tokenizer)) {
    config["eos_token"] = *end;
    config["pad_token"] = *end;
  }
  const std::vector<int32_t> prefix = tokenizer->prompt_prefix();
  if (!prefix.empty()) {
    if (const auto begin = NameOf(prefix.front(), added, *tokenizer)) config["bos_token"] = *begin;
  }
  for (const json& token : added) {
    const auto name = token["content"].get<std::string>();
    if (token.value("special", false) && name.find("pad") != std::string::npos) {
      config["pad_token"] = name;
    }
  }
  const json* unknown = vocabulary.is_object() && vocabulary["model"].contains("unk_token")
                            ? &vocabulary["model"]["unk_token"]
                            : nullptr;
  if (unknown != nullptr && unknown->is_string()) config["unk_token"] = *unknown;
  return config.dump(2) + "\n";
}

}  // namespace

json TokenIdsOf(const std::string& folder) {
  for (const char* name : {kSourceConfigFile, kGenerationConfigFile}) {
    json ids = TokenIdsIn(ReadIfThere(folder, name));
    if (!ids.empty()) return ids;
  }
  json ids = json::object();
  if (!HasTokenizer(folder)) return ids;
  const auto tokenizer = OpenTokenizer(folder);
  const std::vector<int32_t> prefix = tokenizer->prompt_prefix();
  if (!prefix.empty()) ids["bos_token_id"] = prefix.front();
  ids["eos_token_id"] = tokenizer->eod_id();
  return ids;
}

std::vector<TokenizerFile> MissingReaderFiles(const std::string& folder, const json& token_ids,
                                              int64_t most_tokens) {
  std::vector<TokenizerFile> files;
  if (!HasTokenizer(folder)) return files;
  if (ReadIfThere(folder, kTokenizerConfigFile).is_null()) {
    files.push_back({kTokenizerConfigFile, TokenizerConfigOf(folder, most_tokens)});
  }
  if (ReadIfThere(folder, kGenerationConfigFile).is_null()) {
    json generation = {{"_from_model_config", true}};
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
      if (token_ids.contains(key)) generation[key] = token_ids[key];
    }
    if (generation.contains("eos_token_id")) {
      files.push_back({kGenerationConfigFile, generation.dump(2) + "\n"});
    }
  }
  return files;
}

}  // namespace trimtab
