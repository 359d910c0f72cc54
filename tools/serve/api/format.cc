// Formats of answers: OpenAI's response_format.
#include "tools/serve/api/asked.h"

namespace trimtab {

std::optional<GrammarSource> ReadFormat(const FieldValue& format) {
  using Kind = GrammarSource::Kind;
  format.RequireObject();
  const FieldValue type = format.At("type");
  if (type.Text() == "text") return std::nullopt;
  if (type.Text() == "json_object") {
    const FieldValue schema = format.At("schema");  // llama.cpp's
    if (schema.null()) return GrammarSource{Kind::kJsonObject, ""};
    schema.RequireObject();
    return GrammarSource{Kind::kJsonSchema, schema.json().dump()};
  }
  if (type.Text() != "json_schema") {
    type.Refuse("\"text\", \"json_object\" or \"json_schema\"");
  }
  // A response's stands beside its type, a chat's one level below.
  const FieldValue inner = format.At("json_schema");
  if (!inner.null()) inner.RequireObject();
  const FieldValue schema = (inner.null() ? format : inner).At("schema");
  schema.RequireObject();
  return GrammarSource{Kind::kJsonSchema, schema.json().dump()};
}

}  // namespace trimtab
