// The weights of a checkpoint for others.
#pragma once

#include <functional>
#include <string>

#include "engine/checkpoint/hugging_face_writer.h"

namespace trimtab {

/// Writes the weights of a checkpoint as a Hugging Face folder, with the tokenizer that it has.
/// `out` must be new or an empty folder; it appears when all is written. `progress` is told the
/// bytes of tensors done now and then; what it throws ends the export, and nothing is left of it.
/// Throws StorageError (checkpoint, out), InputError when no model type describes the model.
HuggingFaceSummary ExportToHuggingFace(const std::string& checkpoint, const std::string& out,
                                       const HuggingFaceOptions& options,
                                       const std::function<void(int64_t bytes)>& progress);

}  // namespace trimtab
