#include "engine/checkpoint/stored_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/json/strict_json.h"
#include "engine/config/model/model_limits.h"

namespace trimtab {
namespace {

using Stored = SafetensorsFolder::Tensor;

constexpr const char* kScaleInv = "_scale_inv";
constexpr const char* kBlocks = "_blocks";
constexpr const char* kScales = "_scales";

constexpr int64_t kMxBlock = 32;  // values of one scale
/// e2m1 without its sign, which is the fourth bit.
constexpr std::array<float, 8> kE2M1 = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

const Stored* Find(const SafetensorsFolder& folder, const std::string& name) {
  const auto found = folder.tensors().find(name);
  return found == folder.tensors().end() ? nullptr : &found->second;
}

/// What belongs to `tensor`.
const Stored& FindBeside(const SafetensorsFolder& folder, const Stored& tensor,
                         const std::string& name) {
  const Stored* found = Find(folder, name);
  if (found != nullptr) return *found;
  throw InputError(fmt::format("{}: tensor '{}' has no '{}' in any file", tensor.file->path(),
                               tensor.entry->name, name));
}

void RequireShape(const Stored& tensor, const std::vector<int64_t>& shape) {
  if (tensor.entry->shape == shape) return;
  throw InputError(fmt::format("{}: tensor '{}' is [{}]; expected [{}]", tensor.file->path(),
                               tensor.entry->name, fmt::join(tensor.entry->shape, ", "),
                               fmt::join(shape, ", ")));
}

void RequireType(const Stored& tensor, bool right, const char* expected) {
  if (right) return;
  throw InputError(fmt::format("{}: tensor '{}' holds no {}", tensor.file->path(),
                               tensor.entry->name, expected));
}

bool Is(const Stored& tensor, DType dtype) { return tensor.entry->dtype == dtype; }

}  // namespace

QuantisationConfig QuantisationOf(const nlohmann::json& config, const std::string& where) {
  constexpr const char* kKey = "quantization_config";
  const auto found = config.find(kKey);
  if (found == config.end() || found->is_null()) return {};
  StrictObject object(*found, fmt::format("{}.{}", where, kKey));
  const nlohmann::json& method = *object.Find("quant_method", Need::kRequired);
  if (method == "mxfp4") return {.kind = Quantisation::kMxfp4};
  if (method != "fp8") object.Refuse("quant_method", "\"fp8\" or \"mxfp4\"");
  const nlohmann::json* format = object.Find("fmt");
  if (format != nullptr && *format != "e4m3") object.Refuse("fmt", "\"e4m3\"");
  const nlohmann::json& blocks = *object.Find("weight_block_size", Need::kRequired);
  const auto is_size = [](const nlohmann::json& size) {
    return size.is_number_unsigned() && size.get<uint64_t>() >= 1 &&
           size.get<uint64_t>() <= static_cast<uint64_t>(kMaxFfn);
  };
  if (!blocks.is_array() || blocks.size() != 2 || !is_size(blocks[0]) || !is_size(blocks[1])) {
    object.Refuse("weight_block_size", "two sizes, of rows and columns");
  }
  return {.kind = Quantisation::kFp8Blocks,
          .block_rows = blocks[0].get<int64_t>(),
          .block_columns = blocks[1].get<int64_t>()};
}

bool StoredTensor::Holds(const SafetensorsFolder& folder, const QuantisationConfig& config,
                         const std::string& name) {
  const bool blocks =
      config.kind == Quantisation::kMxfp4 && Find(folder, name + kBlocks) != nullptr;
  return blocks || Find(folder, name) != nullptr;
}

StoredTensor::StoredTensor(const SafetensorsFolder& folder, const QuantisationConfig& config,
                           const std::string& name, const std::vector<int64_t>& shape,
                           std::set<std::string>& used) {
  const Stored* plain = Find(folder, name);
  if (plain == nullptr) {
    kind_ = Quantisation::kMxfp4;
    values_ = folder.tensors().at(name + kBlocks);
    scales_ = FindBeside(folder, values_, name + kScales);
    if (shape.size() != 3 || shape[1] % kMxBlock != 0) {
      throw InputError(
          fmt::format("{}: tensor '{}' would be [{}]; blocks are of {} of three "
                      "dimensions' second",
                      values_.file->path(), values_.entry->name, fmt::join(shape, ", "), kMxBlock));
    }
    rows_ = shape[2];
    columns_ = shape[1];
    RequireShape(values_, {shape[0], rows_, columns_ / kMxBlock, kMxBlock / 2});
    RequireShape(scales_, {shape[0], rows_, columns_ / kMxBlock});
    for (const Stored& tensor : {values_, scales_}) {
      RequireType(tensor, Is(tensor, DType::kU8), "bytes; expected U8");
    }
    used.insert({name + kBlocks, name + kScales});
    return;
  }
  values_ = *plain;
  RequireShape(values_, shape);
  used.insert(name);
  const std::optional<DType> dtype = values_.entry->dtype;
  RequireType(values_, dtype && (IsPlainFloat(*dtype) || IsFp8(*dtype)),
              "numbers of a type that is read; expected F32, BF16, F16, F8_E4M3 or F8_E5M2");
  if (config.kind != Quantisation::kFp8Blocks || !IsFp8(*dtype)) return;
  kind_ = config.kind;
  RequireType(values_, Is(values_, DType::kF8E4M3) && shape.size() == 2,
              "matrix of blocks; expected two dimensions of F8_E4M3");
  scales_ = FindBeside(folder, values_, name + kScaleInv);
  rows_ = shape[0];
  columns_ = shape[1];
  block_rows_ = config.block_rows;
  block_columns_ = config.block_columns;
  RequireShape(scales_, {CeilDiv(rows_, block_rows_), CeilDiv(columns_, block_columns_)});
  RequireType(scales_, scales_.entry->dtype && IsPlainFloat(*scales_.entry->dtype),
              "scales; expected F32, BF16 or F16");
  used.insert(name + kScaleInv);
}

void StoredTensor::Read(int64_t element, std::span<float> values, int64_t stride) const {
  if (kind_ == Quantisation::kMxfp4) return ReadMxfp4(element, values, stride);
  values_.file->Read(*values_.entry, element, values, stride);
  if (kind_ == Quantisation::kNone) return;
  const int64_t blocks = CeilDiv(columns_, block_columns_);  // of a row
  while (!values.empty()) {
    const int64_t row = element / columns_;
    const int64_t column = element % columns_;
    const int64_t block = column / block_columns_;
    float scale = 0;
    scales_.file->Read(*scales_.entry, row / block_rows_ * blocks + block, std::span(&scale, 1));
    const int64_t end = std::min(columns_, (block + 1) * block_columns_);
    const auto within = static_cast<size_t>(CeilDiv(end - column, stride));
    const size_t count = std::min(values.size(), within);
    for (float& value : values.first(count)) value *= scale;
    values = values.subspan(count);
    element += static_cast<int64_t>(count) * stride;
  }
}

void StoredTensor::ReadMxfp4(int64_t element, std::span<float> values, int64_t stride) const {
  const std::span<const std::byte> codes = values_.file->bytes(*values_.entry);
  const std::span<const std::byte> exponents = scales_.file->bytes(*scales_.entry);
  int64_t expert = element / rows_ / columns_;
  int64_t column = element / rows_ % columns_;
  int64_t row = element % rows_;
  for (float& value : values) {
    const int64_t at = (expert * rows_ + row) * columns_ + column;
    const auto both = std::to_integer<unsigned>(codes[static_cast<size_t>(at / 2)]);
    const unsigned code = at % 2 == 0 ? both & 0xF : both >> 4;
    const float magnitude = kE2M1[code & 7];
    const auto exponent = std::to_integer<int>(exponents[static_cast<size_t>(at / kMxBlock)]);
    value = std::ldexp((code & 8) != 0 ? -magnitude : magnitude, exponent - 127);
    column += stride / rows_;
    row += stride % rows_;
    if (row >= rows_) {
      row -= rows_;
      ++column;
    }
    for (; column >= columns_; column -= columns_) ++expert;
  }
}

}  // namespace trimtab
