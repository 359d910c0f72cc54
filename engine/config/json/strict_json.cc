#include "engine/config/json/strict_json.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/base/units.h"

namespace trimtab {
namespace {

constexpr size_t kShownChars = 60;

/// `text` on one line of printable characters, cut after `limit`.
std::string OneLine(std::string_view text, size_t limit) {
  std::string line;
  for (const char c : text.substr(0, limit)) {
    // Bytes beyond ASCII may be cut in the middle or not be UTF-8 at all.
    const auto byte = static_cast<unsigned char>(c);
    line += byte < 0x20 || byte >= 0x7f ? '?' : c;
  }
  return text.size() > limit ? line + "..." : line;
}

/// "name:line:column" of the byte at `offset`.
std::string Position(const std::string& name, std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 == 0
  return fmt::format("{}:{}:{}", name, line, before.size() - line_start + 1);
}

/// Refuses nesting that would be costly to walk, before any of it is built.
void CheckDepth(const std::string& text, const std::string& name) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxJsonDepth) {
        throw InputError(fmt::format("{}: nested deeper than {} levels", Position(name, text, i),
                                     kMaxJsonDepth));
      }
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
}

/// What the parser found wrong, without its error code, position and state.
std::string ParserMessage(const std::string& what) {
  std::string message = what.substr(std::min(what.size(), what.find("] ") + 2));
  const size_t column = message.find(", column ");
  if (message.starts_with("parse error at line") && column != std::string::npos) {
    const size_t colon = message.find(": ", column);
    if (colon != std::string::npos) message = message.substr(colon + 2);
  }
  const size_t fault = message.find(" - ");
  if (message.starts_with("syntax error") && fault != std::string::npos) {
    message = message.substr(fault + 3);
  }
  constexpr std::string_view kRead = "; last read: ";
  if (const size_t read = message.find(kRead); read != std::string::npos) {
    message.replace(read, kRead.size(), " near ");
  }
  return OneLine(message, 200);
}

}  // namespace

nlohmann::json ParseJsonText(const std::string& text, const std::string& name) {
  CheckDepth(text, name);
  std::vector<std::set<std::string>> keys;  // of each object that is open
  const auto refuse_duplicates = [&](int, nlohmann::json::parse_event_t event,
                                     nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::object_start) keys.emplace_back();
    if (event == nlohmann::json::parse_event_t::object_end) keys.pop_back();
    if (event == nlohmann::json::parse_event_t::key) {
      const std::string key = parsed.get<std::string>();
      if (!keys.back().insert(key).second) {
        throw InputError(fmt::format("{}: key \"{}\" appears twice in one object", name,
                                     OneLine(key, kShownChars)));
      }
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text, refuse_duplicates);
  } catch (const nlohmann::json::parse_error& error) {
    const size_t offset = error.byte > 0 ? error.byte - 1 : 0;
    throw InputError(
        fmt::format("{}: not JSON: {}", Position(name, text, offset), ParserMessage(error.what())));
  } catch (const nlohmann::json::exception& error) {
    throw InputError(fmt::format("{}: not JSON: {}", name, ParserMessage(error.what())));
  }
}

nlohmann::json ReadJsonFile(const std::string& path) {
  const auto refuse = [&path] {
    throw InputError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  };
  // A pipe may be read, as of a shell's <(...); but one to which nobody writes is not waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) refuse();
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  const std::unique_ptr<FILE, int (*)(FILE*)> file(::fdopen(fd, "rb"), std::fclose);
  if (file == nullptr) refuse();
  std::string text;
  std::vector<char> chunk(static_cast<size_t>(kMiB));
  while (const size_t count = std::fread(chunk.data(), 1, chunk.size(), file.get())) {
    text.append(chunk.data(), count);
    if (static_cast<int64_t>(text.size()) > kMaxJsonBytes) {
      throw InputError(
          fmt::format("{}: larger than {}, too large for JSON", path, FormatBytes(kMaxJsonBytes)));
    }
  }
  if (std::ferror(file.get()) != 0) refuse();
  return ParseJsonText(text, path);
}

void RequireNoNegative(const nlohmann::json& object, std::initializer_list<const char*> keys,
                       const std::string& where) {
  for (const char* key : keys) {
    const nlohmann::json value = object.is_object() ? object.value(key, nlohmann::json()) : object;
    if (value.is_number() && value.get<double>() >= 0) continue;
    throw InputError(fmt::format("{}: {} is {}; expected a number of at least 0", where, key,
                                 DescribeJson(value)));
  }
}

std::string DescribeJson(const nlohmann::json& value) {
  // Containers are named rather than printed: they may be of any size.
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  return OneLine(value.dump(), kShownChars);
}

StrictObject::StrictObject(const nlohmann::json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) {
    throw InputError(fmt::format("{}: expected an object, got {}", where_, DescribeJson(object_)));
  }
}

std::string StrictObject::Where(const std::string& key) const { return where_ + "." + key; }

void StrictObject::Refuse(const std::string& key, const std::string& expected) const {
  throw InputError(
      fmt::format("{}: expected {}, got {}", Where(key), expected, DescribeJson(object_.at(key))));
}

const nlohmann::json* StrictObject::Find(const std::string& key, Need need) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  const auto found = object_.find(key);
  if (found != object_.end()) return &*found;
  if (need == Need::kOptional) return nullptr;
  const std::string mistyped = OneLine(NearestName(key, Unread()), kShownChars);
  throw InputError(fmt::format("{}: required, but missing{}", Where(key),
                               mistyped.empty() ? "" : "; is '" + mistyped + "' meant to be it?"));
}

void StrictObject::Integer(const std::string& key, int64_t& value, int64_t min, int64_t max,
                           Need need) {
  const nlohmann::json* found = Find(key, need);
  if (found == nullptr) return;
  // An unsigned number beyond int64 would wrap around in get<int64_t>().
  const bool fits =
      found->is_number_integer() &&
      (!found->is_number_unsigned() ||
       found->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (!fits || found->get<int64_t>() < min || found->get<int64_t>() > max) {
    // The end of the type is no limit that anybody had in mind, unless the value is beyond it.
    const bool open = max == std::numeric_limits<int64_t>::max() &&
                      min > std::numeric_limits<int64_t>::min() &&
                      !(found->is_number() && found->get<double>() >= 0x1p63);
    Refuse(key, open ? fmt::format("an integer of at least {}", min)
                     : fmt::format("an integer from {} to {}", min, max));
  }
  value = found->get<int64_t>();
}

void StrictObject::Unsigned(const std::string& key, uint64_t& value, Need need) {
  const nlohmann::json* found = Find(key, need);
  if (found == nullptr) return;
  // A number that is set in code rather than parsed may be signed and yet not negative.
  const bool fits =
      found->is_number_unsigned() || (found->is_number_integer() && found->get<int64_t>() >= 0);
  if (!fits) Refuse(key, "an integer from 0 to 2^64 - 1");
  value = found->get<uint64_t>();
}

void StrictObject::Number(const std::string& key, double& value, double min, double max,
                          Need need) {
  const nlohmann::json* found = Find(key, need);
  if (found == nullptr) return;
  if (!found->is_number() || !(found->get<double>() >= min && found->get<double>() <= max)) {
    Refuse(key, fmt::format("a number from {} to {}", min, max));
  }
  value = found->get<double>();
}

void StrictObject::Boolean(const std::string& key, bool& value, Need need) {
  const nlohmann::json* found = Find(key, need);
  if (found == nullptr) return;
  if (!found->is_boolean()) Refuse(key, "true or false");
  value = found->get<bool>();
}

void StrictObject::Texts(const std::string& key, std::vector<std::string>& values,
                         const std::string& element, Need need) {
  const nlohmann::json* found = Find(key, need);
  if (found == nullptr) return;
  if (!found->is_array()) Refuse(key, fmt::format("an array, each of it {}", element));
  values.clear();
  for (const nlohmann::json& text : *found) {
    if (!text.is_string()) {
      throw InputError(fmt::format("{}[{}]: expected {}, got {}", Where(key), values.size(),
                                   element, DescribeJson(text)));
    }
    values.push_back(text.get<std::string>());
  }
}

void StrictObject::Text(const std::string& key, std::string& value, Need need) {
  const nlohmann::json* found = Find(key, need);
  if (found == nullptr) return;
  if (!found->is_string()) Refuse(key, "a string");
  value = found->get<std::string>();
}

void StrictObject::Line(const std::string& key, std::string& value, Need need) {
  std::string text = value;
  Text(key, text, need);
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; };
  if (std::ranges::any_of(text, is_control)) Refuse(key, "one line without control characters");
  value = text;
}

void StrictObject::Choice(const std::string& key, std::string& value,
                          std::span<const std::string> valid, Need need) {
  const nlohmann::json* found = Find(key, need);
  if (found == nullptr) return;
  std::string names;
  for (const std::string& name : valid) names += (names.empty() ? "" : ", ") + name;
  if (!found->is_string()) Refuse(key, "one of " + names);
  const std::string text = found->get<std::string>();
  if (std::find(valid.begin(), valid.end(), text) == valid.end()) {
    const std::string nearest = NearestName(text, valid);
    throw InputError(fmt::format("{}: expected one of {}, got {}{}", Where(key), names,
                                 DescribeJson(*found),
                                 nearest.empty() ? "" : "; did you mean '" + nearest + "'?"));
  }
  value = text;
}

void StrictObject::Array(const std::string& key, Need need, size_t least, const ArrayReader& read) {
  const nlohmann::json* array = Find(key, need);
  if (array == nullptr) return;
  if (!array->is_array() || array->size() < least) {
    Refuse(key, least == 0   ? std::string("an array")
                : least == 1 ? std::string("an array that is not empty")
                             : fmt::format("an array of at least {}", least));
  }
  for (size_t i = 0; i < array->size(); ++i) {
    read((*array)[i], fmt::format("{}[{}]", Where(key), i));
  }
}

std::vector<std::string> StrictObject::Unread() const {
  std::vector<std::string> unread;
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) unread.push_back(key);
  }
  return unread;
}

void StrictObject::Finish() const {
  for (const std::string& key : Unread()) {
    throw InputError(fmt::format("{}: unknown key{}", Where(OneLine(key, kShownChars)),
                                 SuggestName(key, known_)));
  }
}

}  // namespace trimtab
