#include "engine/base/error.h"

#include <cstdio>
#include <cstdlib>

namespace trimtab {

void AssertFailed(const char* condition, const char* file, int line, const std::string& message) {
  fmt::print(stderr, "trimtab: {}:{}: assertion failed: {}: {}\n", file, line, condition, message);
  std::abort();
}

}  // namespace trimtab
