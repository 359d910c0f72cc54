// Where the files of a family hold a parameter.
//
// The tensors of a file and the parameters of the engine hold the same numbers in other places:
// query, key and value apart or interleaved by head, matrices transposed, rows of padding. Each of
// our rows is an affine view of one of their tensors, so one rule reads and writes them all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/model/model_config.h"
#include "engine/parameters/parameter.h"

namespace trimtab {

/// A tensor of theirs, as a model of this shape must have it.
struct HuggingFaceTensor {
  std::string name;  // in full: "model.layers.0.mlp.up_proj.weight"
  std::vector<int64_t> shape;
};

/// Rows [begin, begin + rows) of a parameter of ours, in full: the element in row begin + r and
/// column c is element first + r * row_stride + c * column_stride of the tensor.
struct HuggingFacePiece {
  int64_t begin = 0;
  int64_t rows = 0;
  size_t tensor = 0;  // index in HuggingFaceSource::tensors
  int64_t first = 0;
  int64_t row_stride = 1;
  int64_t column_stride = 1;
};

/// Where a parameter is: its pieces follow each other and cover all of its rows.
struct HuggingFaceSource {
  std::vector<HuggingFaceTensor> tensors;
  std::vector<HuggingFacePiece> pieces;
};

struct Family;

/// What a buffer that belongs to the model looks like as a parameter: the same on all ranks.
ParameterSpec SpecOf(const Buffer& buffer);

/// Where the family's files hold the parameter, which is whole or a rank's share of one of `model`.
/// Throws InputError when the family has no such parameter.
HuggingFaceSource SourceOf(const Family& family, const ModelConfig& model,
                           const ParameterSpec& parameter);

/// Returns where else files of the family may hold the parameter: experts as Transformers 5 holds
/// them, in one tensor of all. Nothing if there is no other place.
std::optional<HuggingFaceSource> FusedSourceOf(const Family& family, const ModelConfig& model,
                                               const ParameterSpec& parameter);

/// Returns the names that a file may give the table of tokens and the weight of the output.
std::string TokenTableName(const Family& family, const ModelConfig& model);
std::string OutputName(const Family& family, const ModelConfig& model);

/// The name that a file may give the tensor instead: without the prefix of the model's body, which
/// files saved from the body alone leave out. The same name where there is none.
std::string ShortName(const Family& family, const std::string& name);

/// Whether a file of the family may hold the tensor although it is no parameter of `model`: buffers
/// that are computed, a copy of the token table where the output shares it, and the layers of
/// multi-token prediction, which are neither trained nor kept.
bool IsPassedOver(const Family& family, const ModelConfig& model, const std::string& name);

}  // namespace trimtab
