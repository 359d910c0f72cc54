// Template: Jinja, as far as chat templates use it.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "engine/chat/jinja/syntax.h"
#include "engine/chat/jinja/text.h"
#include "engine/chat/jinja/value.h"

namespace trimtab::jinja {

/// A rendering that failed, or that the template refused.
struct RenderError : UsageError {
  RenderError(const std::string& message, bool by_template)
      : UsageError(message), raised(by_template) {}

  bool raised;  // by raise_exception: the message is the template's own
};

/// Safe to use from several threads.
class Template {
 public:
  /// Throws InputError "NAME: line N: what". The environment is that of transformers: trim_blocks,
  /// lstrip_blocks, loop controls, `generation` blocks, nothing escaped.
  Template(std::string_view source, std::string name);

  /// Renders with `variables`; strftime_now formats `now`. Throws RenderError.
  Text Render(const Entries& variables, std::time_t now) const;

 private:
  std::shared_ptr<const Body> body_;
  std::string name_;
};

}  // namespace trimtab::jinja
