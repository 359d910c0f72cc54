// The version of the program, as printed by --version and noted in studies.
#pragma once

#include <string>

namespace trimtab {

inline constexpr const char* kVersion = "0.1.0";

/// Notes which commit the program was built from, before it runs; empty where that is not known.
void SetBuildCommit(const std::string& commit);

/// Returns what --version prints: version, commit, and the backends that the program finds.
std::string VersionText();

}  // namespace trimtab
