#include "engine/checkpoint/hugging_face_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/checkpoint/safetensors_folder.h"
#include "engine/families/hugging_face.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

/// Elements that are copied at a time, when a row has no more.
constexpr int64_t kAtOnce = int64_t{1} << 22;

void WriteJson(const std::string& path, const nlohmann::json& json) {
  const std::string text = json.dump(2) + "\n";
  File file = File::Create(path);
  file.Append(std::as_bytes(std::span(text)));
  file.Sync();
  file.Close();
}

/// Hugging Face's name of a type.
const char* TorchName(DType dtype) {
  if (dtype == DType::kBf16) return "bfloat16";
  return dtype == DType::kF16 ? "float16" : "float32";
}

int64_t Numel(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

/// Which of `count` places first, first + stride, ... lie in [begin, end).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};
Range Within(int64_t first, int64_t stride, int64_t count, int64_t begin, int64_t end) {
  const auto before = [&](int64_t limit) {  // how many lie before it
    return std::clamp<int64_t>(limit <= first ? 0 : CeilDiv(limit - first, stride), 0, count);
  };
  return {before(begin), before(end)};
}

}  // namespace

HuggingFaceWriter::HuggingFaceWriter(const AtomicFolder& folder, const ModelConfig& model,
                                     const ParameterStore& declared,
                                     const nlohmann::json& token_ids,
                                     const HuggingFaceOptions& options) {
  nlohmann::json config = ToHuggingFace(model);
  config.update(token_ids);
  config["torch_dtype"] = TorchName(options.dtype);
  summary_.model_type = config["model_type"].get<std::string>();
  const Family& family = RequireFamily(summary_.model_type, model.name);
  for (const Parameter* parameter : declared.parameters()) {
    AddParameter(family, model, parameter->spec);
  }
  for (const auto& buffer : declared.buffers().all()) {
    if (buffer->kind != BufferKind::kState) continue;
    buffers_.push_back(std::make_unique<ParameterSpec>(SpecOf(*buffer)));
    AddParameter(family, model, *buffers_.back());
  }
  MakeFiles(folder.temporary(), options);
  WriteJson(folder.temporary() + "/config.json", config);
}

void HuggingFaceWriter::AddParameter(const Family& family, const ModelConfig& model,
                                     const ParameterSpec& parameter) {
  const HuggingFaceSource source = SourceOf(family, model, parameter);
  std::vector<size_t> places;
  for (const HuggingFaceTensor& tensor : source.tensors) {
    const auto [known, added] = by_name_.try_emplace(tensor.name, tensors_.size());
    if (added) tensors_.push_back({.tensor = tensor, .parts = {}});
    places.push_back(known->second);
  }
  for (const HuggingFacePiece& piece : source.pieces) {
    tensors_[places[piece.tensor]].parts.push_back({&parameter, piece});
  }
}

void HuggingFaceWriter::MakeFiles(const std::string& directory, const HuggingFaceOptions& options) {
  std::vector<std::vector<SafetensorsEntry>> shards(1);
  int64_t shard_bytes = 0;
  for (Tensor& each : tensors_) {
    const int64_t bytes = Numel(each.tensor.shape) * SizeOf(options.dtype);
    if (shard_bytes > 0 && shard_bytes + bytes > options.max_shard_bytes) {
      shards.emplace_back();
      shard_bytes = 0;
    }
    shard_bytes += bytes;
    summary_.tensor_bytes += bytes;
    each.file = shards.size() - 1;
    shards.back().push_back(
        {.name = each.tensor.name, .dtype = options.dtype, .shape = each.tensor.shape});
  }
  summary_.tensors = static_cast<int64_t>(tensors_.size());
  nlohmann::json weight_map = nlohmann::json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        shards.size() == 1 ? std::string(kSingleFile)
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const SafetensorsEntry& entry : shards[i]) weight_map[entry.name] = name;
    files_.push_back(
        std::make_unique<SafetensorsWriter>(directory + "/" + name, std::move(shards[i]),
                                            std::map<std::string, std::string>{{"format", "pt"}}));
    summary_.files.push_back(name);
  }
  if (shards.size() == 1) return;
  WriteJson(directory + "/" + kIndexFile,
            {{"metadata", {{"total_size", summary_.tensor_bytes}}}, {"weight_map", weight_map}});
}

void HuggingFaceWriter::Write(const CheckpointReader& from,
                              const std::function<void(int64_t bytes)>& progress) {
  std::vector<float> values;
  int64_t bytes = 0;
  for (const Tensor& each : tensors_) {
    SafetensorsWriter& file = *files_[each.file];
    const SafetensorsEntry& entry = file.Find(each.tensor.name);
    const int64_t row = Numel(each.tensor.shape) / std::max<int64_t>(1, each.tensor.shape.front());
    const int64_t step = std::max<int64_t>(1, kAtOnce / row) * row;
    for (int64_t first = 0; first < entry.numel(); first += step) {
      values.assign(static_cast<size_t>(std::min(step, entry.numel() - first)), 0.0f);
      for (const Part& part : each.parts) Read(from, part, first, values);
      file.Write(entry, first, values);
      bytes += static_cast<int64_t>(values.size()) * SizeOf(*entry.dtype);
      progress(bytes);
    }
  }
  for (const auto& file : files_) file->Finish();
}

void HuggingFaceWriter::Read(const CheckpointReader& from, const Part& part, int64_t first,
                             std::span<float> values) {
  const HuggingFacePiece& piece = part.piece;
  const int64_t end = first + static_cast<int64_t>(values.size());
  const int64_t columns = part.parameter->partition.full_columns;
  // `values` are whole rows of theirs: of ours, rows, or where the matrix is transposed, columns.
  const bool by_rows = piece.column_stride == 1;
  const Range rows = by_rows ? Within(piece.first, piece.row_stride, piece.rows, first, end)
                             : Range{0, piece.rows};
  const Range cut =
      by_rows ? Range{0, columns} : Within(piece.first, piece.column_stride, columns, first, end);
  const auto& buffers = from.header().buffers;
  const auto buffer = buffers.find(part.parameter->name);
  const auto read = [&](int64_t row, int64_t column, std::span<float> target) {
    if (buffer != buffers.end()) {
      std::copy_n(buffer->second.begin() + (piece.begin + row), target.size(), target.begin());
      return;
    }
    from.Read(kWeightSlot, {.spec = part.parameter,
                            .begin = (piece.begin + row) * columns + column,
                            .values = target});
  };
  const auto place = [&](int64_t row, int64_t column) {
    return static_cast<size_t>(piece.first + row * piece.row_stride + column * piece.column_stride -
                               first);
  };
  if (rows.begin == rows.end) return;
  if (by_rows && piece.row_stride == columns) {
    const auto count = static_cast<size_t>((rows.end - rows.begin) * columns);
    return read(rows.begin, 0, values.subspan(place(rows.begin, 0), count));
  }
  std::vector<float> line(static_cast<size_t>(cut.end - cut.begin));
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    read(row, cut.begin, line);
    for (int64_t column = cut.begin; column < cut.end; ++column) {
      values[place(row, column)] = line[static_cast<size_t>(column - cut.begin)];
    }
  }
}

}  // namespace trimtab
