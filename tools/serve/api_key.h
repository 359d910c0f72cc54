// The key that a server asks its clients for.
#pragma once

#include <string>

namespace trimtab {

/// What stands in the file, which has one line. Throws InputError.
std::string ReadApiKey(const std::string& path);

}  // namespace trimtab
