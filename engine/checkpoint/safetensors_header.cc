#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/checkpoint/safetensors.h"

namespace trimtab {
namespace {

using nlohmann::json;

/// A type of the format.
struct TypeName {
  std::string_view name;
  int64_t bytes = 0;  // of one element
  std::optional<DType> dtype = std::nullopt;
};
constexpr std::array<TypeName, 17> kTypeNames = {{{"F32", 4, DType::kF32},
                                                  {"BF16", 2, DType::kBf16},
                                                  {"F16", 2, DType::kF16},
                                                  {"F8_E4M3", 1, DType::kF8E4M3},
                                                  {"F8_E5M2", 1, DType::kF8E5M2},
                                                  {"I32", 4, DType::kI32},
                                                  {"I64", 8, DType::kI64},
                                                  {"U16", 2, DType::kU16},
                                                  {"U8", 1, DType::kU8},
                                                  {"F8_E8M0", 1},
                                                  {"F64", 8},
                                                  {"C64", 8},
                                                  {"BOOL", 1},
                                                  {"I8", 1, DType::kI8},
                                                  {"I16", 2},
                                                  {"U32", 4},
                                                  {"U64", 8}}};

const TypeName& TypeOf(const SafetensorsEntry& entry) {
  const auto* type = std::find_if(kTypeNames.begin(), kTypeNames.end(), [&](const auto& known) {
    return known.dtype && known.dtype == entry.dtype;
  });
  TRIMTAB_ASSERT(type != kTypeNames.end(), "{} has no type of the format", entry.name);
  return *type;
}

[[noreturn]] void Fail(const std::string& where, const std::string& what) {
  throw InputError(fmt::format("{}: {}", where, what));
}

/// Names come from the file: shortened, and without characters that would break a line.
std::string Printable(const std::string& name) {
  std::string shown = name.substr(0, 80);
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F) c = '?';
  }
  return shown;
}

/// A non-negative integer below 2^62, or nothing.
std::optional<int64_t> Size(const json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<uint64_t>();
  if (number >= (uint64_t{1} << 62)) return std::nullopt;
  return static_cast<int64_t>(number);
}

/// Bytes of a shape, or nothing when they pass `limit`.
std::optional<int64_t> ShapeBytes(const std::vector<int64_t>& shape, int64_t element_bytes,
                                  int64_t limit) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t bytes = element_bytes;
  for (const int64_t dim : shape) {
    if (bytes > limit / dim) return std::nullopt;
    bytes *= dim;
  }
  return bytes;
}

SafetensorsEntry ParseEntry(const std::string& name, const json& value, int64_t data_bytes,
                            const std::string& where) {
  const std::string at = fmt::format("{}: tensor '{}'", where, Printable(name));
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
      !value.contains("shape") || !value.contains("data_offsets")) {
    Fail(at, "expected an object of dtype, shape and data_offsets");
  }
  SafetensorsEntry entry;
  entry.name = name;
  const json& dtype = value["dtype"];
  const auto* type = std::find_if(kTypeNames.begin(), kTypeNames.end(), [&](const TypeName& known) {
    return dtype.is_string() && dtype.get_ref<const std::string&>() == known.name;
  });
  if (type == kTypeNames.end()) {
    std::vector<std::string_view> names;
    for (const TypeName& known : kTypeNames) names.push_back(known.name);
    Fail(at, fmt::format("dtype is not one of {}", fmt::join(names, ", ")));
  }
  entry.dtype = type->dtype;
  if (!value["shape"].is_array()) Fail(at, "shape is not a list");
  for (const json& dim : value["shape"]) {
    const std::optional<int64_t> size = Size(dim);
    if (!size) Fail(at, "shape holds something that is not a size");
    entry.shape.push_back(*size);
  }
  const json& offsets = value["data_offsets"];
  const bool pair = offsets.is_array() && offsets.size() == 2;
  const std::optional<int64_t> begin = pair ? Size(offsets[0]) : std::nullopt;
  const std::optional<int64_t> end = pair ? Size(offsets[1]) : std::nullopt;
  if (!begin || !end || *begin > *end || *end > data_bytes) {
    Fail(at, fmt::format("data_offsets are not two ascending offsets into {} bytes", data_bytes));
  }
  entry.begin = *begin;
  entry.end = *end;
  const std::optional<int64_t> bytes = ShapeBytes(entry.shape, type->bytes, data_bytes);
  if (!bytes || *bytes != *end - *begin) {
    Fail(at, fmt::format("data_offsets span {} bytes, which its shape does not", *end - *begin));
  }
  return entry;
}

/// Parses JSON, refusing an object that names one key twice: the two would race for one tensor.
json ParseStrict(std::string_view text, const std::string& where) {
  std::vector<std::set<std::string>> keys;
  bool repeated = false;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key) {
      repeated |= !keys.back().insert(parsed.get<std::string>()).second;
    }
    return true;
  };
  json header = json::parse(text, watch, /*allow_exceptions=*/false);
  if (!text.starts_with('{') || !header.is_object()) Fail(where, "the header is not a JSON object");
  if (repeated) Fail(where, "the header names a key twice");
  return header;
}

}  // namespace

std::vector<SafetensorsEntry> ParseSafetensorsHeader(std::string_view header, int64_t data_bytes,
                                                     const std::string& where) {
  const json parsed = ParseStrict(header, where);
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, value] : parsed.items()) {
    if (name == "__metadata__") {
      const bool strings = value.is_object() && std::all_of(value.begin(), value.end(),
                                                            [](auto& v) { return v.is_string(); });
      if (!strings) Fail(where, "__metadata__ is not an object of strings");
      continue;
    }
    entries.push_back(ParseEntry(name, value, data_bytes, where));
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t next = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != next) {
      Fail(where, fmt::format("tensor '{}' begins at {}; expected {}, the end of the one before it",
                              Printable(entry.name), entry.begin, next));
    }
    next = entry.end;
  }
  if (next != data_bytes) {
    Fail(where, fmt::format("{} bytes of data; expected {} by the header", data_bytes, next));
  }
  return entries;
}

std::string LayOutSafetensors(std::vector<SafetensorsEntry>& entries,
                              const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  header["__metadata__"] = metadata;
  int64_t next = 0;
  for (SafetensorsEntry& entry : entries) {
    const TypeName& type = TypeOf(entry);
    entry.begin = next;
    entry.end = next += entry.numel() * type.bytes;
    header[entry.name] = {
        {"dtype", type.name}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = header.dump();
  text.resize(static_cast<size_t>(RoundUp(static_cast<int64_t>(text.size()), 8)), ' ');
  const uint64_t size = text.size();
  std::string file(sizeof(size), '\0');
  std::memcpy(file.data(), &size, sizeof(size));
  return file + text;
}

}  // namespace trimtab
