#include "engine/base/io/loaded_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace trimtab {

LoadedLibrary::LoadedLibrary(const char* name)
    : name_(name), handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  const char* reason = dlerror();
  problem_ = reason == nullptr ? fmt::format("{} cannot be loaded", name) : reason;
}

void* LoadedLibrary::Address(const char* function_name) {
  if (handle_ == nullptr) return nullptr;
  void* address = dlsym(handle_, function_name);
  if (address == nullptr && problem_.empty()) {
    problem_ = fmt::format("{} has no {}", name_, function_name);
  }
  return address;
}

}  // namespace trimtab
