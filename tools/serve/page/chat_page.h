// The page on which a person chats with the model.
#pragma once

#include <string>
#include <string_view>

namespace trimtab {

struct ChatPage {
  std::string html;
  std::string policy;  // for the header Content-Security-Policy
};

/// Returns the page with a nonce of its own: a browser runs its script and style and no others, and
/// lets it talk with this server alone.
ChatPage MakeChatPage();

/// The file, with "@nonce@" where a nonce belongs.
std::string_view ChatPageFile();

}  // namespace trimtab
