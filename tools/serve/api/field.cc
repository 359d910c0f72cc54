#include "tools/serve/api/field.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/base/nearest_name.h"

namespace trimtab {
namespace {

constexpr size_t kShownName = 60;

std::array<std::span<const Field>, 6> Tables() {
  return {PromptFields(), ChatFields(),    SamplingFields(),
          OutputFields(), GrammarFields(), OtherFields()};
}

/// Refuses a value that would ask for something.
void RequireNeutral(const Field& field, const FieldValue& value) {
  const Json neutral = Json::parse(field.neutral);
  if (std::ranges::find(neutral, value.json()) != neutral.end()) return;
  std::string texts;
  for (const Json& each : neutral) texts += (texts.empty() ? "" : " or ") + each.dump();
  throw InputError(fmt::format("{}: expected {}, got {}: {}", value.path(),
                               texts.empty() ? "null" : texts, DescribeValue(value.json()),
                               field.note));
}

}  // namespace

const Field* FindField(std::string_view name, Endpoint endpoint) {
  for (const std::span<const Field> table : Tables()) {
    for (const Field& field : table) {
      if (field.name == name && (field.endpoints & endpoint) != 0) return &field;
    }
  }
  return nullptr;
}

std::vector<const Field*> FieldsOf(Endpoint endpoint) {
  std::vector<const Field*> fields;
  for (const std::span<const Field> table : Tables()) {
    for (const Field& field : table) {
      if ((field.endpoints & endpoint) != 0) fields.push_back(&field);
    }
  }
  return fields;
}

std::vector<std::string> FieldNames(Endpoint endpoint) {
  std::vector<std::string> names;
  for (const Field* field : FieldsOf(endpoint)) names.emplace_back(field->name);
  return names;
}

void ReadFields(const Json& body, Asked& asked) {
  for (const auto& [key, json] : body.items()) {
    const Field* field = FindField(key, asked.out.endpoint);
    if (field == nullptr) {
      const std::string shown = Printable(key, kShownName);
      if (asked.model.strict) {
        throw InputError(fmt::format("$.{}: unknown field{}", shown,
                                     SuggestName(key, FieldNames(asked.out.endpoint))));
      }
      asked.out.ignored.push_back(shown);
      continue;
    }
    if (json.is_null()) continue;
    const FieldValue value(json, fmt::format("$.{}", key));
    if (field->kind == FieldKind::kNeutral) RequireNeutral(*field, value);
    if (field->kind == FieldKind::kTaken) field->read(asked, value);
  }
}

}  // namespace trimtab
