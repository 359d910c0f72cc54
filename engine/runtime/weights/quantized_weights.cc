#include "engine/runtime/weights/quantized_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/base/units.h"
#include "engine/checkpoint/slice_runs.h"
#include "engine/checkpoint/tile_sums.h"
#include "engine/checkpoint/xxh64.h"
#include "engine/config/json/strict_json.h"

namespace trimtab {
namespace {

constexpr char kHeaderFile[] = "quantized.json";
constexpr char kWeightsFile[] = "weights.safetensors";
constexpr char kSumsFile[] = "weights.checksums";
constexpr int64_t kSchemaVersion = 3;
// With a checksum of the whole file of weights.
constexpr int64_t kOldestSchemaVersion = 2;
constexpr std::array<WeightFormat, 3> kFormats = {WeightFormat::kF8, WeightFormat::kInt8,
                                                  WeightFormat::kInt4};

DType StoredAs(WeightFormat format) {
  if (format == WeightFormat::kF8) return DType::kF8E4M3;
  return format == WeightFormat::kInt8 ? DType::kI8 : DType::kU8;
}

int64_t NumbersPerElement(WeightFormat format) { return format == WeightFormat::kInt4 ? 2 : 1; }

std::string NameOf(const ParameterSpec& spec) { return std::string(spec.name); }
std::string ScalesName(const ParameterSpec& spec) { return NameOf(spec) + ".scales"; }
std::string InputScalesName(const ParameterSpec& spec) { return NameOf(spec) + ".input_scales"; }

std::vector<int64_t> NumbersShape(WeightFormat format, const ParameterSpec& spec) {
  const Partition& whole = spec.partition;
  return {whole.full_rows, CeilDiv(whole.full_columns, NumbersPerElement(format))};
}
std::vector<int64_t> ScalesShape(WeightFormat format, const ParameterSpec& spec) {
  return {spec.partition.full_rows, ScalesOf(format, spec.partition.full_columns)};
}

/// 4 bits, as int4 has them, as a number.
float FromNibble(int bits) { return static_cast<float>(bits >= 8 ? bits - 16 : bits); }

std::vector<float> PackNibbles(std::span<const float> numbers) {
  std::vector<float> bytes;
  for (size_t i = 0; i < numbers.size(); i += 2) {
    const int low = static_cast<int>(numbers[i]) & 0xf;
    const int high = i + 1 < numbers.size() ? static_cast<int>(numbers[i + 1]) & 0xf : 0;
    bytes.push_back(static_cast<float>(low | high << 4));
  }
  return bytes;
}

}  // namespace

bool IsQuantized(const std::string& directory) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(directory) / kHeaderFile, ignored);
}

bool IsQuantized(const ParameterSpec& spec) {
  return spec.multiplied > 0 && spec.tensor_parallel && spec.absorbed_rows == 0;
}

QuantizedWeights::QuantizedWeights(const std::string& directory)
    : file_(directory + "/" + kWeightsFile) {
  const std::string path = directory + "/" + kHeaderFile;
  const nlohmann::json json = ReadJsonFile(path);
  StrictObject object(json, path + ": $");
  int64_t version = 0;
  object.Integer("schema_version", version, kOldestSchemaVersion, kSchemaVersion, Need::kRequired);
  std::vector<std::string> names;
  for (const WeightFormat format : kFormats) names.emplace_back(Name(format));
  std::string name;
  object.Choice("weights", name, names, Need::kRequired);
  format_ =
      kFormats[static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin())];
  model_ = ModelConfigFromJson(*object.Find("model", Need::kRequired), object.Where("model"));
  std::string whole;
  std::string header;
  std::string checksums;
  if (version == kOldestSchemaVersion) {
    object.Text("weights_xxh64", whole, Need::kRequired);
  } else {
    object.Text("header_xxh64", header, Need::kRequired);
    object.Text("checksums_xxh64", checksums, Need::kRequired);
  }
  if (const nlohmann::json* buffers = object.Find("buffers")) {
    try {
      buffers->get_to(buffers_);
    } catch (const nlohmann::json::exception&) {
      object.Refuse("buffers", "an object of lists of numbers");
    }
  }
  object.Finish();
  RequireUndamaged(whole, header, checksums);
}

void QuantizedWeights::RequireUndamaged(const std::string& whole, const std::string& header,
                                        const std::string& checksums) {
  const auto require = [](const std::string& path, std::span<const std::byte> content,
                          const std::string& expected) {
    const std::string found = Xxh64Hex(content);
    if (found == expected) return;
    throw InputError(
        fmt::format("{}: xxh64 {}; expected {}: it was damaged or replaced since it was written",
                    path, found, expected));
  };
  if (!whole.empty()) return require(file_.path(), MappedFile(file_.path()).bytes(), whole);
  require(file_.path(), file_.header(), header);
  const MappedFile sums(std::filesystem::path(file_.path()).replace_filename(kSumsFile).string());
  require(sums.path(), sums.bytes(), checksums);
  file_.ExpectSums(sums.bytes(), sums.path());
}

void QuantizedWeights::Read(const TensorSlice& slice) const {
  const int64_t end = slice.begin + std::ssize(slice.values);
  ForEachRun(*slice.spec, slice.begin, end, [&](int64_t local, int64_t full, int64_t count) {
    ReadRun(
        *slice.spec, full,
        slice.values.subspan(static_cast<size_t>(local - slice.begin), static_cast<size_t>(count)));
  });
}

std::vector<float> QuantizedWeights::InputScales(const ParameterSpec& spec) const {
  const auto found = file_.entries().find(InputScalesName(spec));
  if (found == file_.entries().end()) return {};
  RequireShape(found->second, DType::kF32, {spec.partition.full_columns});
  std::vector<float> scales(static_cast<size_t>(spec.partition.full_columns));
  file_.Read(found->second, 0, scales);
  return scales;
}

void QuantizedWeights::RequireShape(const SafetensorsEntry& entry, DType dtype,
                                    const std::vector<int64_t>& shape) const {
  if (entry.dtype == dtype && entry.shape == shape) return;
  throw InputError(fmt::format("{}: tensor '{}' has shape [{}]; expected {} [{}]", file_.path(),
                               entry.name, fmt::join(entry.shape, ", "), Name(dtype),
                               fmt::join(shape, ", ")));
}

void QuantizedWeights::ReadRun(const ParameterSpec& spec, int64_t full,
                               std::span<float> values) const {
  const SafetensorsEntry& entry = file_.Find(NameOf(spec));
  if (!IsQuantized(spec)) {
    RequireShape(entry, DType::kF32, FullShape(spec));
    return file_.Read(entry, full, values);
  }
  RequireShape(entry, StoredAs(format_), NumbersShape(format_, spec));
  const SafetensorsEntry& scales_entry = file_.Find(ScalesName(spec));
  RequireShape(scales_entry, DType::kF32, ScalesShape(format_, spec));
  const int64_t columns = spec.partition.full_columns;
  const int64_t groups = scales_entry.shape[1];
  std::vector<float> scales(static_cast<size_t>(groups));
  std::vector<float> stored;
  for (size_t done = 0; done < values.size();) {
    const int64_t row = (full + static_cast<int64_t>(done)) / columns;
    const int64_t first = (full + static_cast<int64_t>(done)) % columns;
    const auto count = std::min(values.size() - done, static_cast<size_t>(columns - first));
    file_.Read(scales_entry, row * groups, scales);
    const int64_t per = NumbersPerElement(format_);
    stored.resize(static_cast<size_t>(CeilDiv(columns, per)));
    file_.Read(entry, row * std::ssize(stored), stored);
    for (size_t i = 0; i < count; ++i) {
      const auto column = static_cast<size_t>(first) + i;
      const float scale = scales[column * scales.size() / static_cast<size_t>(columns)];
      float number = stored[column / static_cast<size_t>(per)];
      if (per == 2) number = FromNibble(static_cast<int>(number) >> (column % 2 * 4) & 0xf);
      values[done + i] = number * scale;
    }
    done += count;
  }
}

QuantizedWriter::QuantizedWriter(const std::string& directory, WeightFormat format,
                                 const WeightSource& source,
                                 std::span<const ParameterSpec* const> specs,
                                 const std::vector<std::string>& scaled)
    : directory_(directory), format_(format) {
  TRIMTAB_ASSERT(std::find(kFormats.begin(), kFormats.end(), format) != kFormats.end(),
                 "{} is not quantised", Name(format));
  std::vector<SafetensorsEntry> entries;
  const auto add = [&](const std::string& name, DType dtype, std::vector<int64_t> shape) {
    entries.push_back({.name = name, .dtype = dtype, .shape = std::move(shape)});
    bytes_ += entries.back().numel() * SizeOf(dtype);
  };
  for (const ParameterSpec* spec : specs) {
    if (!IsQuantized(*spec)) {
      add(NameOf(*spec), DType::kF32, FullShape(*spec));
      continue;
    }
    add(NameOf(*spec), StoredAs(format), NumbersShape(format, *spec));
    add(ScalesName(*spec), DType::kF32, ScalesShape(format, *spec));
    if (std::find(scaled.begin(), scaled.end(), NameOf(*spec)) == scaled.end()) continue;
    add(InputScalesName(*spec), DType::kF32, {spec->partition.full_columns});
  }
  file_ = std::make_unique<SafetensorsWriter>(
      directory + "/" + kWeightsFile, std::move(entries),
      std::map<std::string, std::string>{{"weights", std::string(Name(format))}}, FileRole::kMake,
      Checksums::kOfTiles);
  header_ = {{"schema_version", kSchemaVersion},
             {"weights", Name(format)},
             {"model", ToJson(source.model())}};
  if (!source.buffers().empty()) header_["buffers"] = source.buffers();
}

void QuantizedWriter::Write(const ParameterSpec& spec, std::span<const float> values,
                            std::span<const float> input_scales) {
  const SafetensorsEntry& entry = file_->Find(NameOf(spec));
  if (!IsQuantized(spec)) return file_->Write(entry, 0, values);
  const auto columns = static_cast<size_t>(spec.partition.full_columns);
  const SafetensorsEntry& scales_entry = file_->Find(ScalesName(spec));
  std::vector<float> scales(static_cast<size_t>(scales_entry.shape[1]));
  std::vector<float> numbers(columns);
  for (int64_t row = 0; row < spec.partition.full_rows; ++row) {
    RoundRow(format_, values.subspan(static_cast<size_t>(row) * columns, columns), numbers, scales);
    file_->Write(scales_entry, row * std::ssize(scales), scales);
    if (format_ == WeightFormat::kInt4) {
      file_->Write(entry, row * entry.shape[1], PackNibbles(numbers));
    } else {
      file_->Write(entry, row * entry.shape[1], numbers);
    }
  }
  if (!input_scales.empty()) file_->Write(file_->Find(InputScalesName(spec)), 0, input_scales);
}

int64_t QuantizedWriter::Finish() {
  file_->Finish();
  const std::span<const std::byte> sums = file_->sums()->bytes();
  header_["header_xxh64"] = Xxh64Hex(file_->header());
  header_["checksums_xxh64"] = Xxh64Hex(sums);
  const std::string text = header_.dump(1) + "\n";
  const auto write = [this](const char* name, std::span<const std::byte> content) {
    File file = File::Create(directory_ + "/" + name);
    file.Append(content);
    file.Sync();
    file.Close();
  };
  write(kSumsFile, sums);
  write(kHeaderFile, std::as_bytes(std::span(text)));
  return bytes_;
}

}  // namespace trimtab
