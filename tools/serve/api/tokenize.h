// Texts as token ids, and back, for clients.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/serve/api/api_request.h"

namespace trimtab {

/// Answers a body of /tokenize, in vLLM's form or llama.cpp's. Throws as ParseApiRequest.
nlohmann::json Tokenize(const std::string& body, const ServedModel& model);

/// Answers a body of /detokenize. Throws as ParseApiRequest.
nlohmann::json Detokenize(const std::string& body, const ServedModel& model);

}  // namespace trimtab
