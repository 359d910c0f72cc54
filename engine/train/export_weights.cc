#include "engine/train/export_weights.h"

#include "engine/train/checkpointing.h"

namespace trimtab {

HuggingFaceSummary ExportToHuggingFace(const std::string& checkpoint, const std::string& out,
                                       const HuggingFaceOptions& options,
                                       const std::function<void(int64_t bytes)>& progress) {
  AtomicFolder folder(out);
  const CheckpointReader reader(checkpoint);
  const ModelConfig& model = reader.header().run.model;
  const WholeModelDeclaration whole = DeclareWholeModel(model);
  HuggingFaceWriter writer(folder, model, whole.parameters, options);
  writer.Write(reader, progress);
  folder.Commit();
  return writer.summary();
}

}  // namespace trimtab
