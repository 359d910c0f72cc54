// Packages of npm's registry, for tests against what others have written.
#pragma once

#include <string>

namespace trimtab {

/// Installs `packages` ("name@version ...") in FOLDER/node_modules, with npm's own files there too.
/// Why they cannot be had here; empty when they are there.
std::string InstallNpmPackages(const std::string& folder, const std::string& packages);

}  // namespace trimtab
