#include "engine/chat/tool_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/chat/reasoning.h"

namespace trimtab {
namespace {

struct Call {
  std::string name;
  std::string arguments;

  bool operator==(const Call&) const = default;
};

struct Parsed {
  std::string content;
  std::vector<Call> calls;
  std::vector<std::string> ids;

  bool operator==(const Parsed& other) const {
    return content == other.content && calls == other.calls;
  }
};

void PrintTo(const Parsed& parsed, std::ostream* out) {
  *out << "'" << parsed.content << "'";
  for (const Call& call : parsed.calls) *out << " " << call.name << "(" << call.arguments << ")";
}

/// Gives `text` in pieces that `random` chooses, of 1 to `most` bytes.
Parsed Parse(ToolFormat format, std::string_view text, size_t most, std::mt19937& random) {
  ToolCallParser parser(format, 1);
  Parsed parsed;
  const auto take = [&](const ParsedDelta& delta) {
    parsed.content += delta.content;
    for (const ToolCallDelta& each : delta.calls) {
      const auto index = static_cast<size_t>(each.index);
      if (!each.name.empty()) {
        EXPECT_EQ(index, parsed.calls.size());
        parsed.calls.push_back({each.name, ""});
        parsed.ids.push_back(each.id);
      }
      ASSERT_LT(index, parsed.calls.size());
      parsed.calls[index].arguments += each.arguments;
    }
  };
  while (!text.empty()) {
    const size_t size = std::min<size_t>(text.size(), 1 + random() % most);
    take(parser.Add(text.substr(0, size), false));
    text.remove_prefix(size);
  }
  take(parser.Add("", true));
  EXPECT_EQ(parser.called(), !parsed.calls.empty());
  return parsed;
}

struct ParserCase {
  const char* format;
  const char* text;
  Parsed expected;
};

const std::vector<ParserCase>& Cases() {
  static const std::vector<ParserCase> kCases = {
      {"hermes",
       "Just text < <tool> {\"name\": \"f\"}",
       {"Just text < <tool> {\"name\": \"f\"}", {}, {}}},
      {"hermes",
       "Look:\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}\\\"<\", \"b\": [1, {}]}}\n"
       "</tool_call>",
       {"Look:", {{"f", "{\"a\": \"}\\\"<\", \"b\": [1, {}]}"}}, {}}},
      {"hermes",
       "<tool_call>{\"arguments\": {\"x\": 1}, \"name\": \"f\"}</tool_call>\n"
       "<tool_call>\n{\"name\": \"g\"}\n</tool_call>\n",
       {"", {{"f", "{\"x\": 1}"}, {"g", "{}"}}, {}}},
      {"hermes",
       "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}",
       {"", {{"f", "{\"a\": 1}"}}, {}}},
      {"hermes",
       "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>",
       {"", {{"f", "{}"}}, {}}},
      {"hermes", "<tool_call>no json</tool_call> b", {"<tool_call>no json</tool_call> b", {}, {}}},
      {"hermes", "<tool_call>{\"nam", {"<tool_call>{\"nam", {}, {}}},
      {"hermes",
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1",
       {"", {{"f", "{\"a\": 1"}}, {}}},
      {"llama3_json",
       " {\"name\": \"f\", \"parameters\": {\"a\": 1}}",
       {"", {{"f", "{\"a\": 1}"}}, {}}},
      {"llama3_json",
       "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; "
       "{\"name\": \"g\", \"parameters\": {\"b\": 2}}",
       {"", {{"f", "{}"}, {"g", "{\"b\": 2}"}}, {}}},
      {"llama3_json", "{\"answer\": 3} is JSON", {"{\"answer\": 3} is JSON", {}, {}}},
      {"llama3_json", "Say {\"name\": \"f\"}", {"Say {\"name\": \"f\"}", {}, {}}},
      {"mistral",
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}}, {\"name\": \"g\", "
       "\"arguments\": {}}]",
       {"", {{"f", "{\"a\": \"]\"}"}, {"g", "{}"}}, {}}},
      {"mistral",
       "ok[TOOL_CALLS]f[ARGS]{\"a\": {\"b\": \"}\"}}[TOOL_CALLS]g{\"c\": 1}",
       {"ok", {{"f", "{\"a\": {\"b\": \"}\"}}"}, {"g", "{\"c\": 1}"}}, {}}},
      {"mistral", "a [TOOL_CALLS", {"a [TOOL_CALLS", {}, {}}},
      {"deepseek_v3",
       "hm<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
       "1}\n```"
       "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {"hm", {{"f", "{\"a\": 1}"}, {"g", "{}"}}, {}}},
      {"deepseek_v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
       "<｜tool▁calls▁end｜>",
       {"", {{"f", "{\"a\": 1}"}}, {}}},
      {"none",
       "<tool_call>{\"name\": \"f\"}</tool_call>",
       {"<tool_call>{\"name\": \"f\"}</tool_call>", {}, {}}},
  };
  return kCases;
}

TEST(ToolCallParser, FindsCallsHoweverTheTextComes) {
  std::mt19937 random(3);
  for (const ParserCase& each : Cases()) {
    for (const size_t most : {1, 2, 5, 1000}) {
      EXPECT_EQ(Parse(ToolFormatNamed(each.format), each.text, most, random), each.expected)
          << each.format << " " << each.text << " in pieces of " << most;
    }
  }
}

TEST(ToolCallParser, PassesArgumentsOnWhileTheyGrow) {
  ToolCallParser parser(ToolFormat::kHermes, 1);
  EXPECT_TRUE(
      parser.Add("<tool_call>{\"name\": \"f\", \"argu", false).calls.at(0).arguments.empty());
  EXPECT_EQ(parser.Add("ments\": {\"a\"", false).calls.at(0).arguments, "{\"a\"");
  EXPECT_EQ(parser.Add(": 1}", false).calls.at(0).arguments, ": 1}");
}

TEST(ToolCallParser, NamesEachCall) {
  std::mt19937 random(3);
  const auto ids = Parse(ToolFormat::kMistral, "[TOOL_CALLS][{\"name\": \"f\"}, {\"name\": \"g\"}]",
                         1000, random)
                       .ids;
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_EQ(ids[0].size(), 9u) << "as Mistral's templates demand";
}

TEST(ToolCallParser, SurvivesRandomTexts) {
  std::mt19937 random(5);
  const std::string parts[] = {"<tool_call>",
                               "</tool_call>",
                               "[TOOL_CALLS]",
                               "[",
                               "]",
                               "{",
                               "}",
                               "\"name\"",
                               "\"arguments\"",
                               ":",
                               ",",
                               "\"f\"",
                               "1",
                               " ",
                               "<|python_tag|>",
                               ";",
                               "[ARGS]",
                               "\\",
                               "\"",
                               "<｜tool▁calls▁begin｜>",
                               "<｜tool▁call▁begin｜>",
                               "<｜tool▁call▁end｜>",
                               "<｜tool▁sep｜>",
                               "<｜tool▁calls▁end｜>"};
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (size_t count = random() % 20; count > 0; --count)
      text += parts[random() % std::size(parts)];
    for (const std::string& name : ToolFormatNames()) {
      const auto seed = static_cast<uint32_t>(random());
      std::mt19937 pieces(seed);
      const Parsed whole = Parse(ToolFormatNamed(name), text, 1000, pieces);
      const Parsed split = Parse(ToolFormatNamed(name), text, 3, pieces);
      EXPECT_EQ(whole.calls, split.calls) << name << ": " << text;
    }
  }
}

TEST(ReasoningParser, SplitsThoughtsFromContent) {
  struct Case {
    bool inside;
    const char* text;
    const char* reasoning;
    const char* content;
  };
  const Case cases[] = {
      {false, "\n<think>\nhm </th \n</think>\n\nYes\n", "hm </th", "Yes\n"},
      {true, "hm\n</think>\nYes </think>", "hm", "Yes </think>"},
      {true, "cut off \n", "cut off", ""},
      {false, "No <think>a</think>", "", "No <think>a</think>"},
      {false, "<think></think>x", "", "x"},
      {false, "  plain", "", "  plain"},
      {false, "<thi", "", "<thi"},
      {false, "", "", ""},
  };
  for (const Case& each : cases) {
    for (const size_t size : {1, 3, 1000}) {
      ReasoningParser parser(each.inside);
      std::string reasoning;
      std::string content;
      const auto take = [&](const ReasonedDelta& delta) {
        reasoning += delta.reasoning;
        content += delta.content;
      };
      for (std::string_view rest = each.text; !rest.empty();) {
        take(parser.Add(rest.substr(0, size), false));
        rest.remove_prefix(std::min(size, rest.size()));
      }
      take(parser.Add("", true));
      EXPECT_EQ(reasoning, each.reasoning) << each.text << " in pieces of " << size;
      EXPECT_EQ(content, each.content) << each.text << " in pieces of " << size;
    }
  }
  EXPECT_TRUE(EndsInThought(jinja::Text("<|assistant|><think>\n")));
  EXPECT_FALSE(EndsInThought(jinja::Text("<think>\n\n</think>\n")));
}

}  // namespace
}  // namespace trimtab
