#include "engine/checkpoint/hugging_face_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/checkpoint/slice_runs.h"
#include "engine/config/json/strict_json.h"
#include "engine/config/model/model_differences.h"
#include "engine/families/hugging_face.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

/// Refuses a config.json at `path` that describes another model than `model`.
void RequireSameModel(const nlohmann::json& config, const ModelConfig& model,
                      const std::string& path) {
  const ModelConfig found = ModelConfigFromHuggingFace(config, path + ": $");
  for (const ModelDifference& each : DifferencesOf(found, model)) {
    throw InputError(fmt::format("{}: describes a model with {} {}; expected {}, as in '{}'", path,
                                 each.name, each.found, each.expected, model.name));
  }
}

/// True if both tensors hold the same bits in the same type and shape.
bool SameElements(const SafetensorsFolder::Tensor& one, const SafetensorsFolder::Tensor& other) {
  return one.entry->dtype == other.entry->dtype && one.entry->shape == other.entry->shape &&
         std::ranges::equal(one.file->bytes(*one.entry), other.file->bytes(*other.entry));
}

}  // namespace

HuggingFaceReader::HuggingFaceReader(const std::string& directory, const ModelConfig& model,
                                     const ParameterStore& declared)
    : directory_(directory), folder_(directory) {
  const std::string path = directory + "/config.json";
  const nlohmann::json config = ReadJsonFile(path);
  RequireSameModel(config, model, path);
  quantisation_ = QuantisationOf(config, path + ": $");
  const Family& family = RequireFamily(config["model_type"].get<std::string>(), path);
  std::set<std::string> used;
  for (const trimtab::Parameter* parameter : declared.parameters()) {
    Add(family, model, parameter->spec, used);
  }
  for (const auto& buffer : declared.buffers().all()) {
    if (buffer->kind == BufferKind::kState) Add(family, model, SpecOf(*buffer), used);
  }
  for (const auto& [name, tensor] : folder_.tensors()) {
    if (used.contains(name) || IsPassedOver(family, model, name)) continue;
    throw InputError(fmt::format("{}: tensor '{}' is no parameter of the model that {} describes",
                                 tensor.file->path(), name, path));
  }
  ReportUntiedOutput(family, model);
  ReportQuantised();
}

void HuggingFaceReader::ReportUntiedOutput(const Family& family, const ModelConfig& model) const {
  const auto output = folder_.tensors().find(OutputName(family, model));
  if (!model.tied_embeddings || output == folder_.tensors().end()) return;
  std::string name = TokenTableName(family, model);
  if (!folder_.tensors().contains(name)) name = ShortName(family, name);
  const auto table = folder_.tensors().find(name);
  if (table == folder_.tensors().end() || SameElements(table->second, output->second)) return;
  LogWarning(
      "{}: '{}' differs from '{}', and config.json ties them: the output uses '{}', as in "
      "Transformers 4; set tie_word_embeddings to false to use '{}', as Transformers 5 does",
      directory_, output->first, name, name, output->first);
}

void HuggingFaceReader::ReportQuantised() const {
  int64_t quantised = 0;
  for (const auto& [name, parameter] : parameters_) {
    quantised += std::count_if(
        parameter.tensors.begin(), parameter.tensors.end(),
        [](const StoredTensor& tensor) { return tensor.quantisation() != Quantisation::kNone; });
  }
  if (quantised == 0) return;
  LogInfo("{}: dequantises {} tensors from {}", directory_, quantised,
          quantisation_.kind == Quantisation::kMxfp4
              ? std::string("MXFP4")
              : fmt::format("fp8 in blocks of {} x {}", quantisation_.block_rows,
                            quantisation_.block_columns));
}

void HuggingFaceReader::Add(const Family& family, const ModelConfig& model,
                            const ParameterSpec& spec, std::set<std::string>& used) {
  HuggingFaceSource source = SourceOf(family, model, spec);
  const auto held = [this, &family](const HuggingFaceTensor& tensor) {
    return StoredTensor::Holds(folder_, quantisation_, tensor.name) ||
           StoredTensor::Holds(folder_, quantisation_, ShortName(family, tensor.name));
  };
  if (!held(source.tensors.front())) {
    auto fused = FusedSourceOf(family, model, spec);
    if (fused && held(fused->tensors.front())) source = std::move(*fused);
  }
  Parameter& parameter = parameters_[spec.name];
  parameter.pieces = source.pieces;
  for (const HuggingFaceTensor& expected : source.tensors) {
    std::string name = expected.name;
    if (!StoredTensor::Holds(folder_, quantisation_, name)) name = ShortName(family, name);
    if (!StoredTensor::Holds(folder_, quantisation_, name)) {
      throw InputError(fmt::format("{}: no file has a tensor '{}'", directory_, expected.name));
    }
    parameter.tensors.emplace_back(folder_, quantisation_, name, expected.shape, used);
  }
}

void HuggingFaceReader::Read(const TensorSlice& slice) const {
  const Parameter& parameter = parameters_.at(slice.spec->name);
  const int64_t columns = slice.spec->partition.full_columns;
  const int64_t end = slice.begin + static_cast<int64_t>(slice.values.size());
  ForEachRun(*slice.spec, slice.begin, end, [&](int64_t local, int64_t full, int64_t count) {
    ReadRun(
        parameter, columns, full,
        slice.values.subspan(static_cast<size_t>(local - slice.begin), static_cast<size_t>(count)));
  });
}

void HuggingFaceReader::ReadRun(const Parameter& parameter, int64_t columns, int64_t full,
                                std::span<float> values) {
  while (!values.empty()) {
    const int64_t row = full / columns;
    const int64_t column = full % columns;
    const auto next =
        std::upper_bound(parameter.pieces.begin(), parameter.pieces.end(), row,
                         [](int64_t at, const HuggingFacePiece& each) { return at < each.begin; });
    const HuggingFacePiece& piece = *std::prev(next);
    const bool dense = piece.column_stride == 1 && piece.row_stride == columns;
    const int64_t end = dense ? (piece.begin + piece.rows) * columns : (row + 1) * columns;
    const auto count = std::min(values.size(), static_cast<size_t>(end - full));
    const int64_t element =
        piece.first + (row - piece.begin) * piece.row_stride + column * piece.column_stride;
    parameter.tensors[piece.tensor].Read(element, values.first(count), piece.column_stride);
    values = values.subspan(count);
    full += static_cast<int64_t>(count);
  }
}

}  // namespace trimtab
