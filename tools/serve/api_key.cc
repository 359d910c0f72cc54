#include "tools/serve/api_key.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "engine/base/io/file.h"

namespace trimtab {

std::string ReadApiKey(const std::string& path) {
  constexpr int64_t kMaxBytes = 4096;
  std::string key = ReadTextFile(path, kMaxBytes);
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  if (key.empty()) throw InputError(fmt::format("{}: empty; expected a key", path));
  if (key.find_first_of("\r\n") == std::string::npos) return key;
  throw InputError(fmt::format("{}: several lines; expected one, the key", path));
}

}  // namespace trimtab
