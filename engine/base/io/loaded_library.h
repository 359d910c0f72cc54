// A shared library that is loaded when it is first needed: a program that never asks for it does
// not pay for it, and runs where there is none.
#pragma once

#include <string>

namespace trimtab {

class LoadedLibrary {
 public:
  /// Loads it by soname or path. It is never unloaded: what it made may outlive any owner.
  explicit LoadedLibrary(const char* name);

  /// Sets `function` to the library's function of that name; nullptr, and a problem, where it has
  /// none.
  template <typename Function>
  void Find(const char* function_name, Function& function) {
    function = reinterpret_cast<Function>(Address(function_name));
  }

  /// Why it cannot be used, in one line; empty while nothing was missed.
  const std::string& problem() const { return problem_; }

 private:
  void* Address(const char* function_name);

  std::string name_;
  void* handle_ = nullptr;
  std::string problem_;
};

}  // namespace trimtab
