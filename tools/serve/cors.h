// Pages of other origins that may use a server, as browsers ask for it.
#pragma once

#include <httplib.h>

#include <string>

namespace trimtab {

/// The headers of every answer where pages of `origin` may read it: "https://a.example", or "*" for
/// all. None without an origin.
httplib::Headers CorsHeaders(const std::string& origin);

/// Answers a request of method OPTIONS: what the path takes, and to a browser's preflight what a
/// page of `origin` may send.
void AnswerPreflight(const httplib::Request& request, const std::string& origin,
                     httplib::Response& response);

/// Refuses what is no origin, naming --cors-origin. Throws UsageError.
void RequireOrigin(const std::string& origin);

}  // namespace trimtab
