#include "engine/chat/jinja/template.h"

#include <fmt/core.h>

#include "engine/chat/jinja/budget.h"
#include "engine/chat/jinja/interpreter.h"
#include "engine/chat/jinja/parser.h"

namespace trimtab::jinja {
namespace {

constexpr size_t kMostTemplateBytes = size_t{4} << 20;

}  // namespace

Template::Template(std::string_view source, std::string name) : name_(std::move(name)) {
  if (source.size() > kMostTemplateBytes) {
    throw InputError(fmt::format("{}: a template of more than 4 MiB", name_));
  }
  try {
    body_ = std::make_shared<const Body>(Parser(Tokenize(source)).ParseTemplate());
  } catch (const SyntaxFault& fault) {
    throw InputError(fmt::format("{}: line {}: {}", name_, fault.line, fault.message));
  }
}

Text Template::Render(const Entries& variables, std::time_t now) const {
  const Budget budget;
  Interpreter interpreter(variables, now);
  try {
    return interpreter.Run(*body_);
  } catch (const Raised& refusal) {
    throw RenderError(refusal.what(), true);
  } catch (const Failure& failure) {
    throw RenderError(fmt::format("{}: line {}: {}", name_, interpreter.line(), failure.what()),
                      false);
  }
}

}  // namespace trimtab::jinja
