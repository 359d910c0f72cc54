// The version of the program, as printed by --version and noted in studies.
#pragma once

namespace trimtab {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace trimtab
