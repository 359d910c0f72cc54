#include "engine/train/export_weights.h"

#include <filesystem>

#include "engine/base/io/file.h"
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
  const CheckpointReader reader(checkpoint);
  const ModelConfig& model = reader.header().run.model;
  const WholeModelDeclaration whole = DeclareWholeModel(model);
  HuggingFaceWriter writer(folder, model, whole.parameters, options);
  writer.Write(reader, progress);
  for (const char* name : kTokenizerFiles) {
    CopyIfThere(checkpoint + "/" + name, folder.temporary() + "/" + name);
  }
  folder.Commit();
  return writer.summary();
}

}  // namespace trimtab
