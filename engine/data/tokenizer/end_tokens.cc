#include "engine/data/tokenizer/end_tokens.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/config/json/strict_json.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr char kKey[] = "eos_token_id";
constexpr char kModelFile[] = "config.json";

int32_t EndToken(const json& id, const std::string& where, int64_t vocab_size) {
  // Compared as numbers of either sign: a negative one is never below 0 as an unsigned one.
  if (id.is_number_integer() && id >= 0 && id < vocab_size) return id.get<int32_t>();
  throw InputError(fmt::format("{}: expected an id from 0 to {}, got {}", where, vocab_size - 1,
                               DescribeJson(id)));
}

}  // namespace

std::vector<int32_t> ReadEndTokens(const std::string& folder, int64_t vocab_size) {
  for (const char* name : {kGenerationConfigFile, kModelFile, kSourceConfigFile}) {
    const std::string path = (std::filesystem::path(folder) / name).string();
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) continue;
    const json root = ReadJsonFile(path);
    StrictObject object(root, path + ": $");
    const json* ends = object.Find(kKey);
    if (ends == nullptr || ends->is_null()) continue;
    if (!ends->is_array()) return {EndToken(*ends, object.Where(kKey), vocab_size)};
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < ends->size(); ++i) {
      tokens.push_back(
          EndToken((*ends)[i], fmt::format("{}[{}]", object.Where(kKey), i), vocab_size));
    }
    return tokens;
  }
  return {};
}

std::map<std::string, std::string> ReadGenerationFiles(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const char* name : {kGenerationConfigFile, kModelFile, kSourceConfigFile}) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) continue;
    const char* kept = name == std::string_view(kModelFile) ? kSourceConfigFile : name;
    files.emplace(kept, ReadTextFile(path.string(), kMaxJsonBytes));
  }
  return files;
}

}  // namespace trimtab
