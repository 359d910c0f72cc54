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

struct TypeName {
  DType dtype;
  std::string_view name;
};
constexpr std::array<TypeName, 5> kTypeNames = {{{DType::kF32, "F32"},
                                                 {DType::kBf16, "BF16"},
                                                 {DType::kF16, "F16"},
                                                 {DType::kI32, "I32"},
                                                 {DType::kI64, "I64"}}};

std::string_view FormatName(DType dtype) {
  for (const TypeName& type : kTypeNames) {
    if (type.dtype == dtype) return type.name;
  }
  return "?";
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
std::optional<int64_t> ShapeBytes(const std::vector<int64_t>& shape, DType dtype, int64_t limit) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t bytes = SizeOf(dtype);
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
  if (type == kTypeNames.end()) Fail(at, "dtype is not one of F32, BF16, F16, I32, I64");
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
  const std::optional<int64_t> bytes = ShapeBytes(entry.shape, entry.dtype, data_bytes);
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
  if (!header.is_object()) Fail(where, "the header is not a JSON object");
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
    int64_t bytes = SizeOf(entry.dtype);
    for (const int64_t dim : entry.shape) bytes *= dim;
    entry.begin = next;
    entry.end = next += bytes;
    header[entry.name] = {{"dtype", FormatName(entry.dtype)},
                          {"shape", entry.shape},
                          {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = header.dump();
  text.resize(static_cast<size_t>(RoundUp(static_cast<int64_t>(text.size()), 8)), ' ');
  const uint64_t size = text.size();
  std::string file(sizeof(size), '\0');
  std::memcpy(file.data(), &size, sizeof(size));
  return file + text;
}

}  // namespace trimtab
