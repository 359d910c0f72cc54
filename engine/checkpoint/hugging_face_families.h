// The tables behind hugging_face_names.h: a row for each layer of a model type.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "engine/config/model_config.h"

namespace trimtab {

/// How tensors of theirs hold a parameter of ours.
enum class HuggingFaceForm {
  kSame,        // one tensor, as ours
  kTransposed,  // one tensor, matrices as [in, out] (GPT-2's Conv1D)
  kStacked,     // tensors whose rows follow each other: query, key and value; or gate and up
  kHeadGroups,  // one tensor: of each group of heads its queries, its key and its value
  kExperts,     // tensors of each expert: as kStacked, one expert after the other
};

/// A layer: "NAME.weight", "NAME.bias" of ours are those of theirs. Each '*' stands for a number,
/// the same in both; one more of theirs, for the number of the expert.
struct HuggingFaceRow {
  std::string_view ours;
  HuggingFaceForm form = HuggingFaceForm::kSame;
  std::array<std::string_view, 3> theirs{};  // those used come first
  std::optional<BlockKind> block{};          // only in models of such blocks
};
using HuggingFaceRows = std::span<const HuggingFaceRow>;

struct HuggingFaceFamily {
  std::string_view model_type;
  std::string_view prefix;                // of the model's body
  std::array<HuggingFaceRows, 4> rows{};  // the first that fits a layer holds
  std::span<const std::string_view> buffers{};
};

/// All model types whose tensors have names.
std::span<const HuggingFaceFamily> HuggingFaceFamilies();

}  // namespace trimtab
