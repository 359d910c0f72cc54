// A library that misbehaves as $TRIMTAB_TEST_LIBRARY says, when it is loaded or when it is asked.
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

bool Wanted(const char* what) {
  const char* value = std::getenv("TRIMTAB_TEST_LIBRARY");
  return value != nullptr && std::string_view(value) == what;
}

__attribute__((constructor)) void Load() {
  std::puts("noise of a library");
  std::fflush(stdout);
  if (Wanted("crash when loaded")) std::abort();
}

}  // namespace

extern "C" int TestVersion(int* version) {
  if (Wanted("crash when asked")) std::abort();
  while (Wanted("hang")) {
  }
  *version = 22703;
  return 0;
}
