// Field: one table of all fields of all bodies, for parsing, for the API's description, for docs.
#pragma once

#include <span>
#include <string_view>

#include "tools/serve/api/asked.h"

namespace trimtab {

enum class FieldKind {
  kTaken,    // has its effect
  kNothing,  // changes nothing here, whatever its value
  kNeutral,  // taken with the values that ask for nothing; others are refused
};

struct Field {
  std::string_view name;
  unsigned endpoints;  // bits of Endpoint
  FieldKind kind;
  std::string_view type;     // JSON schema of its value, without the outer braces
  std::string_view neutral;  // kNeutral: a JSON list of values
  std::string_view note;     // what it does, why it does nothing, or why it is refused
  void (*read)(Asked& asked, const FieldValue& value) = nullptr;  // kTaken
};

inline constexpr unsigned kText = kCompletions | kChat;
inline constexpr unsigned kAnswers = kText | kResponses;

/// The tables by subject.
std::span<const Field> SamplingFields();
std::span<const Field> OutputFields();
std::span<const Field> ChatFields();
std::span<const Field> PromptFields();
std::span<const Field> GrammarFields();
std::span<const Field> OtherFields();

/// The field of this name at an endpoint; null where it has none.
const Field* FindField(std::string_view name, Endpoint endpoint);
/// The names of all fields of an endpoint.
std::vector<std::string> FieldNames(Endpoint endpoint);
/// All fields of an endpoint, in the order of the tables.
std::vector<const Field*> FieldsOf(Endpoint endpoint);

/// Reads all fields of a body by the tables. Adds names that they lack to `asked.out.ignored`, or
/// refuses them where the model is strict. Null stands for a field that is left out.
void ReadFields(const Json& body, Asked& asked);

}  // namespace trimtab
