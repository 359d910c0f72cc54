#include "tools/serve/request_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string_view>

namespace trimtab {
namespace {

/// Compares all of both, so that the time taken tells nothing about where they differ.
bool SameSecret(std::string_view a, std::string_view b) {
  unsigned differences = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    differences |= static_cast<unsigned char>(a[i]) ^
                   static_cast<unsigned char>(b[b.empty() ? 0 : i % b.size()]);
  }
  return differences == 0;
}

/// Bytes of a body that is too large that are read all the same, in the largest one that is taken.
constexpr int64_t kSkipped = 16;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

HeadFault FaultOfLength(const httplib::Request& request, int64_t max_body_bytes, BodyState body,
                        const PathTable& paths) {
  const int64_t most = body == BodyState::kAwaited ? max_body_bytes : kSkipped * max_body_bytes;
  const auto [begin, end] = request.headers.equal_range("Content-Length");
  for (auto header = begin; header != end; ++header) {
    const std::string& text = header->second;
    if (text.empty() || !std::ranges::all_of(text, IsDigit)) {
      return {400, fmt::format("Content-Length: '{}'; expected a number of bytes", text)};
    }
    if (text != begin->second) {
      return {400,
              fmt::format("Content-Length: both {} and {}; expected one", begin->second, text)};
    }
    int64_t length = 0;
    const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    if (error != std::errc() || length > most) {
      return {413, MessageOf(request, 413, max_body_bytes, paths)};
    }
  }
  if (begin != end || request.has_header("Transfer-Encoding")) return {};
  // Of these methods the library would wait for what may still come.
  if (request.method == "POST") {
    return {411, "no Content-Length; expected a JSON object as the body"};
  }
  if (request.method == "PUT" || request.method == "PATCH" || request.method == "PRI") {
    const int status = paths.MethodsOf(request.path).empty() ? 404 : 405;
    return {status, MessageOf(request, status, max_body_bytes, paths)};
  }
  return {};
}

HeadFault FaultOfBody(const httplib::Request& request) {
  if (request.is_multipart_form_data()) {
    return {400, "a body in several parts; expected a JSON object"};
  }
  // What the library decodes; others it would pass on as they are.
  static constexpr std::array<std::string_view, 5> kEncodings = {"", "identity", "gzip", "deflate",
                                                                 "br"};
  const std::string encoding = request.get_header_value("Content-Encoding");
  if (std::ranges::find(kEncodings, encoding) != kEncodings.end()) return {};
  return {415,
          fmt::format("Content-Encoding: '{}'; expected identity, gzip, deflate or br", encoding)};
}

bool ShowsKey(const std::string& authorization, const std::string& key) {
  constexpr std::string_view kScheme = "bearer ";
  const std::string_view given = authorization;
  const bool bearer = std::ranges::equal(
      given.substr(0, kScheme.size()), kScheme,
      [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; });
  return SameSecret(bearer ? given.substr(kScheme.size()) : std::string_view(), key);
}

std::string MessageOf(const httplib::Request& request, int status, int64_t max_body_bytes,
                      const PathTable& paths) {
  std::string what;
  if (status == 404) {
    what = paths.WhyNot(request.path);
  } else if (status == 405) {
    what = fmt::format("not for {}; expected {}", request.method, paths.MethodsOf(request.path));
  } else if (status == 413) {
    what = fmt::format("the body is too large; expected at most {} bytes", max_body_bytes);
  } else if (status == 414) {
    what = fmt::format("the address is too long; expected a request line of at most {} bytes",
                       CPPHTTPLIB_REQUEST_URI_MAX_LENGTH);
  } else {
    what = fmt::format(
        "the request is not understood; expected HTTP/1.1, lines of at most {} bytes in its head, "
        "and a body as long as that says",
        CPPHTTPLIB_HEADER_MAX_LENGTH);
  }
  return request.path.empty() ? what : fmt::format("{}: {}", request.path, what);
}

}  // namespace trimtab
