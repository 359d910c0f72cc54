// Names of Hugging Face's tensors, and how they hold the engine's parameters: as data.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/config/model/model_config.h"

namespace trimtab {

/// How tensors of a file hold a parameter of the engine.
enum class TensorForm {
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

/// One layer, whose "NAME.weight" and "NAME.bias" are those of `theirs`; or one parameter, by its
/// full name. Each '*' stands for a number, the same in both names; one more in `theirs` stands for
/// the number of the expert.
struct TensorRow {
  std::string_view ours;
  std::array<std::string_view, 3> theirs{};  // those used come first
  TensorForm form = TensorForm::kSame;
  std::optional<BlockKind> block{};  // only in models of such blocks
};
using TensorRows = std::span<const TensorRow>;

/// The tensors of a family's files.
struct TensorNames {
  std::string_view prefix{};       // of the model's body
  std::vector<TensorRows> rows{};  // the first that fits a layer holds
  std::span<const std::string_view>
      buffers{};       // tensors that files may hold, and that are computed
  TensorRows fused{};  // experts as Transformers 5 holds them, and may save them
};

}  // namespace trimtab
