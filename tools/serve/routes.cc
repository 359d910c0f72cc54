#include "tools/serve/routes.h"

#include <array>

namespace trimtab {
namespace {

using enum Handler;

constexpr std::array kRoutes = {
    Route{"/", kPage, "a page to chat with the model"},
    Route{"/health", kHealth, "200, or 503 while draining or after the engine failed"},
    Route{"/v1/health", kHealth, "as /health"},
    Route{"/ping", kPing, "200, or 503 as /health"},
    Route{"/version", kServerVersion, "the server's version"},
    Route{"/metrics", kMetrics, "counts and histograms for Prometheus"},
    Route{"/openapi.json", kOpenApi, "this description"},
    Route{"/v1/models", kModels, "the model that is served"},
    Route{"/models", kModels, "as /v1/models"},
    Route{"/v1/models/*", kModel, "the model of this name"},
    Route{"/models/*", kModel, "as /v1/models/NAME"},
    Route{"/v1/completions", kGenerate, "completes texts", kCompletions},
    Route{"/completions", kGenerate, "as /v1/completions", kCompletions},
    Route{"/v1/chat/completions", kGenerate, "answers conversations", kChat},
    Route{"/chat/completions", kGenerate, "as /v1/chat/completions", kChat},
    Route{"/v1/responses", kGenerate, "answers conversations, as OpenAI's responses", kResponses},
    Route{"/responses", kGenerate, "as /v1/responses", kResponses},
    Route{"/v1/embeddings", kGenerate, "texts as vectors of length 1", kEmbeddings},
    Route{"/embeddings", kGenerate, "as /v1/embeddings", kEmbeddings},
    Route{"/tokenize", Handler::kTokenize, "a text or a conversation as token ids",
          Endpoint::kTokenize},
    Route{"/v1/tokenize", Handler::kTokenize, "as /tokenize", Endpoint::kTokenize},
    Route{"/detokenize", Handler::kDetokenize, "token ids as a text", Endpoint::kDetokenize},
    Route{"/v1/detokenize", Handler::kDetokenize, "as /detokenize", Endpoint::kDetokenize},
    Route{"/completion", kRefused, "expected /v1/completions"},
    Route{"/infill", kRefused, "expected /v1/completions with the model's own tokens"},
    Route{"/embedding", kRefused, "expected /v1/embeddings"},
    Route{"/apply-template", kRefused, "expected /tokenize with messages"},
    Route{"/props", kRefused, "expected /v1/models or /metrics"},
    Route{"/slots", kRefused, "expected /metrics"},
    Route{"/load", kRefused, "expected /metrics"},
    Route{"/server_info", kRefused, "expected /version or /v1/models"},
    Route{"/lora-adapters", kRefused, "one model is served"},
    Route{"/v1/load_lora_adapter", kRefused, "one model is served"},
    Route{"/v1/responses/*", kRefused, "responses are not kept"},
    Route{"/v1/chat/completions/*", kRefused, "chat completions are not kept"},
    Route{"/v1/messages", kRefused, "expected /v1/chat/completions"},
    Route{"/api/*", kRefused, "expected /v1/chat/completions, as OpenAI's API"},
    Route{"/v1/rerank", kRefused, "expected /v1/embeddings"},
    Route{"/rerank", kRefused, "expected /v1/embeddings"},
    Route{"/v1/score", kRefused, "expected /v1/embeddings"},
    Route{"/score", kRefused, "expected /v1/embeddings"},
    Route{"/pooling", kRefused, "expected /v1/embeddings"},
    Route{"/classify", kRefused, "the model writes text; expected /v1/chat/completions"},
    Route{"/v1/audio/*", kRefused, "the model reads and writes text"},
    Route{"/v1/images/*", kRefused, "the model reads and writes text"},
    Route{"/v1/moderations", kRefused, "the model writes text; expected /v1/chat/completions"},
    Route{"/v1/files", kRefused, "nothing is kept"},
    Route{"/v1/batches", kRefused, "nothing is kept; send the requests at once"},
    Route{"/v1/fine_tuning/*", kRefused, "expected trimtab train"},
};

bool Matches(const Route& route, std::string_view path) {
  if (!route.path.ends_with('*')) return path == route.path;
  const std::string_view begin = route.path.substr(0, route.path.size() - 1);
  return path.size() > begin.size() && path.starts_with(begin);
}

std::string_view WithoutSlashes(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

}  // namespace

std::span<const Route> AllRoutes() { return kRoutes; }

const Route* FindRoute(std::string_view path) {
  const std::string_view bare = WithoutSlashes(path);
  for (const Route& route : kRoutes) {
    if (Matches(route, bare)) return &route;
  }
  return nullptr;
}

std::string NameIn(const Route& route, std::string_view path) {
  return std::string(WithoutSlashes(path).substr(route.path.size() - 1));
}

std::string MethodsOf(std::string_view path) {
  const Route* route = FindRoute(path);
  if (route == nullptr || route->handler == kRefused) return "";
  return route->post() ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

std::string LabelOf(std::string_view path) {
  const Route* route = FindRoute(path);
  return route == nullptr || route->handler == kRefused ? "other" : std::string(route->path);
}

}  // namespace trimtab
