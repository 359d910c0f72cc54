// Routes: one table of all paths, for serving, for counts, and for the API's description.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tools/serve/api/api_request.h"

namespace trimtab {

enum class Handler {
  kPage,
  kHealth,
  kPing,
  kServerVersion,
  kMetrics,
  kOpenApi,
  kModels,
  kModel,
  kGenerate,
  kTokenize,
  kDetokenize,
  kRefused,  // known elsewhere; the summary says what to use
};

struct Route {
  std::string_view path;  // a '*' at its end: any name
  Handler handler;
  std::string_view summary;
  Endpoint endpoint = kCompletions;  // whose fields a body has, of routes that take one

  bool post() const {
    return handler == Handler::kGenerate || handler == Handler::kTokenize ||
           handler == Handler::kDetokenize;
  }
  /// True where no key is asked for.
  bool open() const {
    return handler == Handler::kHealth || handler == Handler::kPing || handler == Handler::kPage;
  }
};

std::span<const Route> AllRoutes();

/// The route of a path, which may end with slashes; null where there is none.
const Route* FindRoute(std::string_view path);

/// What stands for the '*' of a route in a path.
std::string NameIn(const Route& route, std::string_view path);

/// What a path answers to, for the header Allow ("POST"); empty for a path that is not served.
std::string MethodsOf(std::string_view path);

/// A path as counts name it: "other" for one that is not served.
std::string LabelOf(std::string_view path);

}  // namespace trimtab
