#include "engine/chat/built_in_templates.h"

#include <fmt/core.h>

#include <string>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"

namespace trimtab {
namespace {

constexpr char kChatMl[] = R"jinja(
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + (message.content or '') + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %})jinja";

constexpr char kLlama3[] = R"jinja(
{%- macro header(role) %}
    {{- '<|start_header_id|>' + role + '<|end_header_id|>\n\n' }}
{%- endmacro %}
{%- for message in messages %}
    {{- header(message.role) + (message.content or '') | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- header('assistant') }}
{%- endif %})jinja";

/// Gemma has no system role: what it says stands before the question that follows.
constexpr char kGemma[] = R"jinja(
{%- set ns = namespace(system='') %}
{%- for message in messages %}
    {%- if message.role in ['system', 'developer'] %}
        {%- set ns.system = ns.system + message.content | trim + '\n\n' %}
    {%- else %}
        {%- set role = 'model' if message.role == 'assistant' else message.role %}
        {{- '<start_of_turn>' + role + '\n' + ns.system + (message.content or '') | trim }}
        {{- '<end_of_turn>\n' }}
        {%- set ns.system = '' %}
    {%- endif %}
{%- endfor %}
{%- if ns.system %}
    {{- raise_exception('a system message must stand before a message of the user') }}
{%- endif %}
{%- if add_generation_prompt %}
    {{- '<start_of_turn>model\n' }}
{%- endif %})jinja";

/// Every question and its answer are a text of their own; the first begins as every prompt does.
constexpr char kLlama2[] = R"jinja(
{%- set ns = namespace(system='', first=true) %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {%- set ns.system = '<<SYS>>\n' + message.content + '\n<</SYS>>\n\n' %}
    {%- elif message.role == 'user' %}
        {{- '' if ns.first else '<s>' }}
        {{- '[INST] ' + ns.system + message.content | trim + ' [/INST]' }}
        {%- set ns.system = '' %}
        {%- set ns.first = false %}
    {%- elif message.role == 'assistant' %}
        {{- ' ' + (message.content or '') | trim + ' </s>' }}
    {%- else %}
        {{- raise_exception("llama-2 knows the roles system, user and assistant, got '" +
                            message.role + "'") }}
    {%- endif %}
{%- endfor %}
{%- if ns.system %}
    {{- raise_exception('a system message must stand before a message of the user') }}
{%- endif %})jinja";

constexpr char kPlain[] = R"jinja(
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {{- message.content + '\n\n' }}
    {%- else %}
        {{- message.role | capitalize + ': ' + (message.content or '') + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'Assistant:' }}
{%- endif %})jinja";

}  // namespace

const std::vector<BuiltInTemplate>& BuiltInTemplates() {
  static const std::vector<BuiltInTemplate> kTemplates = {
      {"chatml", {"<|im_start|>", "<|im_end|>"}, kChatMl},
      {"gemma", {"<start_of_turn>", "<end_of_turn>"}, kGemma},
      {"llama-2", {"<s>", "</s>"}, kLlama2},
      {"llama-3", {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}, kLlama3},
      {"plain", {}, kPlain},
  };
  return kTemplates;
}

const BuiltInTemplate& FindBuiltInTemplate(std::string_view name) {
  std::vector<std::string> names;
  for (const BuiltInTemplate& each : BuiltInTemplates()) {
    if (each.name == name) return each;
    names.emplace_back(each.name);
  }
  throw UsageError(fmt::format("unknown chat template '{}'{}", name, SuggestName(name, names)));
}

}  // namespace trimtab
