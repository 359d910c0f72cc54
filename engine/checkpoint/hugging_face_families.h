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
  // Tensors of all experts:
  kStackedExperts,         // as kStacked, each with the rows of one expert after the other
  kTransposedRowsExperts,  // one, of the transposed matrix of one expert after the other
  kTransposedExperts,      // one, [E, in, out]; vectors [E, out]
  kInterleavedExperts,     // the same, with gate and up in turn in the place of one after the other
  kWholeExperts,           // one, [E, out, in], as ours
};

/// A layer: "NAME.weight", "NAME.bias" of ours are those of theirs. Or a parameter, each by its
/// full name. Each '*' stands for a number, the same in both; one more of theirs, for the number of
/// the expert.
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
  std::array<HuggingFaceRows, 5> rows{};  // the first that fits a layer holds
  std::span<const std::string_view> buffers{};
  HuggingFaceRows fused{};  // as Transformers 5 holds experts, and may save them
};

/// All model types whose tensors have names.
std::span<const HuggingFaceFamily> HuggingFaceFamilies();

}  // namespace trimtab
