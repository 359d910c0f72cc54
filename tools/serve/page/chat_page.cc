#include "tools/serve/page/chat_page.h"

#include <fmt/format.h>

#include <random>

namespace trimtab {

ChatPage MakeChatPage() {
  constexpr std::string_view kMark = "@nonce@";
  std::random_device device;
  std::string nonce;
  for (int i = 0; i < 4; ++i) nonce += fmt::format("{:08x}", device());
  ChatPage page;
  page.html = ChatPageFile();
  for (size_t at = 0; (at = page.html.find(kMark, at)) != std::string::npos;) {
    page.html.replace(at, kMark.size(), nonce);
  }
  page.policy = fmt::format(
      "default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; connect-src 'self'; "
      "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      nonce);
  return page;
}

}  // namespace trimtab
