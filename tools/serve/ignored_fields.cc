#include "tools/serve/ignored_fields.h"

#include <fmt/format.h>

#include "engine/base/log.h"

namespace trimtab {
namespace {

constexpr size_t kMostLogged = 100;   // clients choose the names: the log must not grow with them
constexpr size_t kMostInHeader = 40;  // nor must headers

}  // namespace

std::string IgnoredFields::Tell(const std::vector<std::string>& names) {
  std::string header;
  for (size_t i = 0; i < names.size() && i < kMostInHeader; ++i) {
    header += (i == 0 ? "" : ", ") + names[i];
  }
  const MutexLock lock(mutex_);
  for (const std::string& name : names) {
    if (logged_.size() >= kMostLogged || !logged_.insert(name).second) continue;
    LogWarning("a client sent the unknown field '{}', which is ignored; serve --strict refuses it",
               name);
  }
  return header;
}

}  // namespace trimtab
