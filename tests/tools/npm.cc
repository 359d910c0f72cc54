#include "tests/tools/npm.h"

#include <fmt/format.h>

#include "tests/tools/shell.h"

namespace trimtab {

std::string InstallNpmPackages(const std::string& folder, const std::string& packages) {
  const Outcome install = Shell(
      fmt::format("HOME={0} npm install --prefix {0} --no-audit --no-fund --ignore-scripts {1}",
                  folder, packages));
  return install.status == 0 ? "" : "npm has not got the packages here: " + install.output;
}

}  // namespace trimtab
