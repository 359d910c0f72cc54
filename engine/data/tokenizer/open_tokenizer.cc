#include "engine/data/tokenizer/open_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/config/json/strict_json.h"
#include "engine/data/dataset/indexed_dataset.h"
#include "engine/data/tokenizer/hugging_face_tokenizer.h"
#include "engine/data/tokenizer/sentencepiece_tokenizer.h"
#include "engine/data/tokenizer/tokenizer_config.h"
#include "engine/data/vocabulary/gpt2_files.h"

namespace trimtab {
namespace {

namespace fs = std::filesystem;

constexpr char kJsonFile[] = "tokenizer.json";
constexpr char kModelFile[] = "tokenizer.model";
constexpr char kTemplateFile[] = "chat_template.jinja";
constexpr char kProcessorTemplateFile[] = "chat_template.json";  // beside a processor of images
constexpr char kMoreTemplatesFolder[] = "additional_chat_templates";  // NAME.jinja
/// Vocabularies, of which the first that is there counts.
constexpr const char* kVocabularyFiles[] = {kModelFile, kJsonFile, kVocabFile, kMergesFile};
/// Files that add to a vocabulary.
constexpr const char* kFilesBeside[] = {kTokenizerConfigFile, kSpecialTokensFile, kAddedTokensFile,
                                        kTemplateFile, kProcessorTemplateFile};

bool IsFile(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool HasGpt2Files(const fs::path& folder) {
  return IsFile(folder / kVocabFile) && IsFile(folder / kMergesFile);
}

/// The file that describes the tokenizer `source`.
fs::path FileOf(const std::string& source) {
  std::error_code ignored;
  if (!fs::is_directory(source, ignored)) return source;
  for (const char* name : {kModelFile, kJsonFile}) {
    if (IsFile(fs::path(source) / name)) return fs::path(source) / name;
  }
  if (HasGpt2Files(source)) return fs::path(source) / kVocabFile;
  throw InputError(fmt::format("{}: no tokenizer in this folder; expected a {} or a {}", source,
                               kModelFile, kJsonFile));
}

/// The templates in files of their own, which count before those of tokenizer_config.json.
void ReadTemplatesBeside(const fs::path& folder, TokenizerConfig& config) {
  const fs::path processor = folder / kProcessorTemplateFile;
  if (IsFile(processor)) {
    const nlohmann::json root = ReadJsonFile(processor.string());
    StrictObject object(root, processor.string() + ": $");
    std::string text;
    object.Text("chat_template", text, Need::kRequired);
    SetChatTemplate(config, "default", std::move(text));
  }
  const fs::path jinja = folder / kTemplateFile;
  if (IsFile(jinja)) {
    SetChatTemplate(config, "default", ReadTextFile(jinja.string(), kMaxJsonBytes));
  }
  std::error_code ignored;
  std::vector<fs::path> more;
  for (const auto& entry : fs::directory_iterator(folder / kMoreTemplatesFolder, ignored)) {
    if (entry.path().extension() == ".jinja") more.push_back(entry.path());
  }
  std::ranges::sort(more);
  for (const fs::path& path : more) {
    SetChatTemplate(config, path.stem().string(), ReadTextFile(path.string(), kMaxJsonBytes));
  }
}

TokenizerConfig ConfigBeside(const fs::path& file) {
  TokenizerConfig config;
  const fs::path path = file.parent_path() / kTokenizerConfigFile;
  if (IsFile(path)) {
    config = ReadTokenizerConfig(ReadTextFile(path.string(), kMaxJsonBytes), path.string());
  }
  const fs::path special = file.parent_path() / kSpecialTokensFile;
  if (IsFile(special)) {
    const TokenizerConfig map =
        ReadTokenizerConfig(ReadTextFile(special.string(), kMaxJsonBytes), special.string());
    if (config.eos_token.empty()) config.eos_token = map.eos_token;
    if (config.bos_token.empty()) config.bos_token = map.bos_token;
  }
  const fs::path added = file.parent_path() / kAddedTokensFile;
  if (IsFile(added)) {
    ReadAddedTokens(ReadTextFile(added.string(), kMaxJsonBytes), added.string(), config);
  }
  ReadTemplatesBeside(file.parent_path(), config);
  return config;
}

void AppendIfThere(const fs::path& folder, const char* name, std::vector<TokenizerFile>& files) {
  if (!IsFile(folder / name)) return;
  files.push_back({name, ReadTextFile((folder / name).string(), kMaxJsonBytes)});
}

/// The files that make the tokenizer of `file` again, from whose folder they are. A vocabulary that
/// would count before it is none of them.
std::vector<TokenizerFile> FilesOf(const fs::path& file, const std::string& content) {
  std::vector<TokenizerFile> files;
  const auto own = std::ranges::find(kVocabularyFiles, file.filename().string(),
                                     [](const char* name) { return std::string(name); });
  if (own == std::end(kVocabularyFiles)) {  // under a name of its own
    files.push_back({file.extension() == ".model" ? kModelFile : kJsonFile, content});
  }
  for (auto name = own; name != std::end(kVocabularyFiles); ++name) {
    AppendIfThere(file.parent_path(), *name, files);
  }
  for (const char* name : kFilesBeside) AppendIfThere(file.parent_path(), name, files);
  return files;
}

}  // namespace

std::unique_ptr<Tokenizer> OpenTokenizer(const std::string& source, int64_t most_ids) {
  if (source == "byte") return MakeByteTokenizer();
  const fs::path file = FileOf(source);
  const std::string extension = file.extension().string();
  if (extension != ".json" && extension != ".model") {
    throw InputError(
        fmt::format("{}: expected 'byte', a tokenizer.json, a tokenizer.model, or a "
                    "folder with one",
                    source));
  }
  std::string content = ReadTextFile(file.string(), kMaxJsonBytes);
  std::vector<TokenizerFile> files = FilesOf(file, content);
  TokenizerConfig config = ConfigBeside(file);
  if (file.filename() == kVocabFile) {
    const std::string merges = (file.parent_path() / kMergesFile).string();
    content = TokenizerJsonOf(content, file.string(), ReadTextFile(merges, kMaxJsonBytes), merges,
                              config);
  }
  if (extension == ".json") {
    return MakeHuggingFaceTokenizer(std::move(content), file.string(), std::move(config), most_ids,
                                    std::move(files));
  }
  const auto left_out = static_cast<int64_t>(std::erase_if(
      config.added_tokens, [&](const AddedToken& each) { return each.id >= most_ids; }));
  WarnOfLeftOut(left_out, file.string(), most_ids);
  return MakeSentencePieceTokenizer(std::move(content), file.string(), std::move(config),
                                    std::move(files));
}

bool HasTokenizer(const std::string& folder) {
  return IsFile(fs::path(folder) / kModelFile) || IsFile(fs::path(folder) / kJsonFile) ||
         HasGpt2Files(folder);
}

std::vector<TokenizerFile> ReadTokenizerFiles(const std::string& folder) {
  std::vector<TokenizerFile> files;
  if (!HasTokenizer(folder)) return files;
  for (const char* name : kVocabularyFiles) AppendIfThere(folder, name, files);
  for (const char* name : kFilesBeside) AppendIfThere(folder, name, files);
  return files;
}

std::vector<TokenizerFile> ReadDatasetTokenizerFiles(const std::string& prefix) {
  const std::optional<DatasetInfo> info = ReadDatasetInfo(prefix);
  if (!info) return {};
  if (info->tokenizer == "byte") return MakeByteTokenizer()->files();
  return ReadTokenizerFiles(TokenizerFolderOf(prefix));
}

std::string TokenizerFolderOf(const std::string& prefix) { return prefix + ".tokenizer"; }

std::unique_ptr<Tokenizer> OpenDatasetTokenizer(const std::string& prefix) {
  const std::optional<DatasetInfo> info = ReadDatasetInfo(prefix);
  if (!info) {
    throw InputError(
        fmt::format("{}.json: no such file; expected it to name the tokenizer of the "
                    "dataset",
                    prefix));
  }
  if (info->tokenizer == "byte") return MakeByteTokenizer();
  return OpenTokenizer(TokenizerFolderOf(prefix));
}

void WriteTokenizer(const Tokenizer& tokenizer, const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw StorageError(fmt::format("{}: {}", folder, error.message()));
  const std::vector<TokenizerFile> files = tokenizer.files();
  for (const TokenizerFile& file : files) {
    AtomicFile out((fs::path(folder) / file.name).string());
    out.Append(std::string_view(file.content));
    out.Commit();
  }
  // Of another tokenizer, whose files would count before these.
  const auto remove_other = [&](const char* name) {
    if (std::ranges::find(files, name, &TokenizerFile::name) != files.end()) return;
    fs::remove(fs::path(folder) / name, error);
    if (error) throw StorageError(fmt::format("{}/{}: {}", folder, name, error.message()));
  };
  for (const char* name : kVocabularyFiles) remove_other(name);
  for (const char* name : kFilesBeside) remove_other(name);
}

}  // namespace trimtab
