#include "engine/train/export_weights.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/base/io/file.h"
#include "engine/data/tokenizer/end_tokens.h"
#include "engine/data/tokenizer/reader_files.h"
#include "engine/families/hugging_face.h"
#include "engine/runtime/whole_model.h"
#include "engine/train/checkpointing.h"

namespace trimtab {
namespace {

void CopyIfThere(const std::string& from, const std::string& to) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(from, ignored)) return;
  const MappedFile source(from);
  File copy = File::Create(to);
  copy.Append(source.bytes());
  copy.Sync();
  copy.Close();
}

}  // namespace

HuggingFaceSummary ExportToHuggingFace(const std::string& checkpoint, const std::string& out,
                                       const HuggingFaceOptions& options,
                                       const std::function<void(int64_t bytes)>& progress) {
  AtomicFolder folder(out);
  const CheckpointReader reader(checkpoint, CheckpointParts::kWeights);
  const ModelConfig& model = reader.header().run.model;
  const WholeModelDeclaration whole = DeclareWholeModel(model);
  const nlohmann::json token_ids = TokenIdsOf(checkpoint);
  HuggingFaceWriter writer(folder, model, whole.parameters, token_ids, options);
  writer.Write(reader, progress);
  for (const std::string name : kTokenizerFiles) {
    if (name == kSourceConfigFile) continue;  // its place has the config.json of this export
    CopyIfThere(checkpoint + "/" + name, folder.temporary() + "/" + name);
  }
  const int64_t most_tokens = std::max(
      model.max_sequence_length, ToHuggingFace(model).value("max_position_embeddings", int64_t{0}));
  for (const TokenizerFile& file : MissingReaderFiles(checkpoint, token_ids, most_tokens)) {
    File out_file = File::Create(folder.temporary() + "/" + file.name);
    out_file.Append(std::as_bytes(std::span(file.content)));
    out_file.Sync();
    out_file.Close();
  }
  folder.Commit();
  return writer.summary();
}

}  // namespace trimtab
