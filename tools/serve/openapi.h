// The description of the API that programs read.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trimtab {

/// All routes and their fields as OpenAPI 3.1, for a model of this name.
nlohmann::json OpenApi(const std::string& model, bool needs_key);

}  // namespace trimtab
