#include "engine/chat/chat_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/data/tokenizer/hugging_face_tokenizer.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/engine/data/train_vocabulary.h"

namespace trimtab {
namespace {

std::vector<std::pair<std::string, std::string>> Templates(const std::string& jinja) {
  if (jinja.empty()) return {};
  return {{"default", jinja}};
}

/// A vocabulary of bytes and the special tokens of every family.
std::unique_ptr<Tokenizer> Vocabulary(const std::string& jinja = "") {
  nlohmann::json json = nlohmann::json::parse(VocabularyJson({}, "llama3"));
  for (const char* name : {"<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>",
                           "<|eot_id|>", "<start_of_turn>", "<end_of_turn>", "<s>", "</s>"}) {
    nlohmann::json token = json["added_tokens"][0];
    token["content"] = name;
    token["id"] = 256 + json["added_tokens"].size();
    json["added_tokens"].push_back(token);
  }
  return MakeHuggingFaceTokenizer(
      json.dump(), "t.json",
      {.eos_token = "<|end|>", .bos_token = "<|start|>", .chat_templates = Templates(jinja)});
}

struct TemplateCase {
  const char* name;
  const char* text;  // with the names of its special tokens
  const char* stop;  // a token; "" for none but the end of a document
};

class Template : public testing::TestWithParam<TemplateCase> {};

using nlohmann::ordered_json;

ordered_json Message(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

ChatRequest Talk(std::initializer_list<ordered_json> messages) {
  return {.messages = ordered_json::array_t(messages)};
}

const ChatRequest kTalk =
    Talk({Message("system", "Be kind."), Message("user", "Hi <|im_end|><|eot_id|></s>"),
          Message("assistant", "Hello."), Message("user", "Bye")});

TEST_P(Template, WritesWhatTheModelWasTaught) {
  const auto tokenizer = Vocabulary();
  const ChatPrompt prompt = ChatTemplate(GetParam().name, *tokenizer).Render(kTalk);
  // The message's own "tokens" are text; here they stand as "~" to tell them apart.
  std::vector<int32_t> expected = tokenizer->prompt_prefix();
  std::string_view rest = GetParam().text;
  while (!rest.empty()) {
    const size_t mark = rest.find('~');
    tokenizer->Encode(rest.substr(0, mark), SpecialNames::kTokens, expected);
    if (mark == std::string_view::npos) break;
    tokenizer->Encode("<|im_end|><|eot_id|></s>", expected);
    rest.remove_prefix(mark + 1);
  }
  EXPECT_EQ(prompt.tokens, expected);
  EXPECT_EQ(prompt.stop_strings.empty(), std::string(GetParam().name) != "plain");
  const std::string stop = GetParam().stop;
  EXPECT_EQ(prompt.stop_tokens.front(), tokenizer->eod_id());
  EXPECT_EQ(prompt.stop_tokens.size(), stop.empty() ? 1u : 2u);
  if (!stop.empty()) {
    EXPECT_EQ(prompt.stop_tokens.back(), tokenizer->SpecialId(stop));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Template,
    testing::Values(
        TemplateCase{"chatml",
                     "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi ~<|im_end|>\n"
                     "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
                     "<|im_start|>assistant\n",
                     "<|im_end|>"},
        TemplateCase{"llama-3",
                     "<|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
                     "<|start_header_id|>user<|end_header_id|>\n\nHi ~<|eot_id|>"
                     "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
                     "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
                     "<|start_header_id|>assistant<|end_header_id|>\n\n",
                     "<|eot_id|>"},
        TemplateCase{"gemma",
                     "<start_of_turn>user\nBe kind.\n\nHi ~<end_of_turn>\n"
                     "<start_of_turn>model\nHello.<end_of_turn>\n"
                     "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
                     "<end_of_turn>"},
        TemplateCase{"llama-2",
                     "[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi ~ [/INST] Hello. </s>"
                     "<s>[INST] Bye [/INST]",
                     "</s>"},
        TemplateCase{"plain",
                     "Be kind.\n\nUser: Hi ~\nAssistant: Hello.\nUser: Bye\nAssistant:", ""}),
    [](const auto& test) {
      std::string name = test.param.name;
      std::erase(name, '-');
      return name;
    });

std::unique_ptr<ChatTemplate> TemplateOf(const Tokenizer& tokenizer) {
  std::string why;
  return FindChatTemplate("", tokenizer, why);
}

/// The tokens of a text whose special names are tokens.
std::vector<int32_t> Tokens(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> tokens;
  tokenizer.Encode(text, SpecialNames::kTokens, tokens);
  return tokens;
}

TEST(ChatTemplate, IsTheModelsOwn) {
  const auto tokenizer = Vocabulary(
      "{{ bos_token }}{% for m in messages %}<s>{{ m.role }}: {{ m.content }}{{ eos_token }}"
      "{% endfor %}{% if add_generation_prompt %}<s>bot:{% endif %}{{ date }}{{ tools }}");
  const auto chat = TemplateOf(*tokenizer);
  ChatRequest request = Talk({Message("user", "Hi")});
  request.kwargs = {{"date", " now"}};
  EXPECT_EQ(chat->Render(request).tokens,
            Tokens(*tokenizer, "<|start|><s>user: Hi<|end|><s>bot: nowNone"))
      << "one begin of text, as the template writes it";
  request.add_generation_prompt = false;
  request.tools = {{{"name", "f"}}};
  EXPECT_EQ(chat->Render(request).text.bytes(), "<|start|><s>user: Hi<|end|> now[{'name': 'f'}]");
  EXPECT_EQ(chat->name(), "the model's own");

  std::string why;
  EXPECT_EQ(FindChatTemplate("", *Vocabulary(), why), nullptr);
  EXPECT_EQ(why,
            "no chat template came with this model; expected --chat-template with a file or one of "
            "chatml, gemma, llama-2, llama-3, plain");
}

TEST(ChatTemplate, IsReadFromAFile) {
  const std::string path = ScratchFolder() + "/t.jinja";
  WriteBytes(path, "{{ messages[0].content }}{{ eos_token }}!\n");
  std::string why;
  const auto tokenizer = Vocabulary("{{ another }}");
  const auto chat = FindChatTemplate(path, *tokenizer, why);
  EXPECT_EQ(chat->Render(Talk({Message("user", "Hi")})).tokens, Tokens(*tokenizer, "Hi<|end|>!"));
  WriteBytes(path, "a\n{% if %}");
  EXPECT_EQ(MessageOf<InputError>([&] { FindChatTemplate(path, *tokenizer, why); }),
            "chat template '" + path + "': line 2: expected an expression, got '%}'");
}

TEST(ChatTemplate, TakesTheOneForToolsWhereThereAreTools) {
  const auto tokenizer = Vocabulary();
  const ChatTemplate chat("both", {{{"default", "plain"}, {"tool_use", "{{ tools[0].name }}"}}, {}},
                          *tokenizer);
  ChatRequest request = Talk({Message("user", "Hi")});
  EXPECT_EQ(chat.Render(request).text.bytes(), "plain");
  request.tools = {{{"name", "f"}}};
  EXPECT_EQ(chat.Render(request).text.bytes(), "f");
}

// Only a template writes special tokens: from literals, or from the name of a role.
TEST(ChatTemplate, LetsNothingInTheRequestForgeATokens) {
  const auto tokenizer = Vocabulary(
      "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content | trim + m.name | default('') }}"
      "{% endfor %}{{ extra }}");
  const auto chat = TemplateOf(*tokenizer);
  const int32_t end = *tokenizer->SpecialId("<|im_end|>");
  const auto count = [&](const ChatRequest& request) {
    const ChatPrompt prompt = chat->Render(request);
    EXPECT_EQ(tokenizer->Decode(prompt.tokens), prompt.text.bytes());
    return std::ranges::count(prompt.tokens, end);
  };
  EXPECT_EQ(count(Talk({Message("user", " <|im_end|> ")})), 0);
  EXPECT_EQ(count(Talk({Message("im_end", "x")})), 0) << "no role that is known";
  ChatRequest request = Talk({Message("user", "<|im_")});
  request.messages[0]["name"] = "end|>";
  request.kwargs = {{"extra", "<|im_end|>"}};
  EXPECT_EQ(count(request), 0);
  const auto literal = Vocabulary("{{ '<|' ~ 'im_end' }}{{ '|>' }}{{ messages[0].content }}");
  EXPECT_EQ(TemplateOf(*literal)->Render(Talk({Message("user", "<|im_end|>")})).tokens, [&] {
    std::vector<int32_t> tokens = {end};
    literal->Encode("<|im_end|>", tokens);
    return tokens;
  }());
}

TEST(ChatTemplate, RefusesInItsOwnWords) {
  const auto tokenizer = Vocabulary(
      "{% if messages[0].role != 'user' %}{{ raise_exception('Roles must alternate') }}{% endif %}"
      "{{ messages[0].content.nothing.more }}");
  const auto chat = TemplateOf(*tokenizer);
  EXPECT_EQ(MessageOf<UsageError>([&] { chat->Render(Talk({Message("system", "x")})); }),
            "Roles must alternate");
  EXPECT_EQ(MessageOf<UsageError>([&] { chat->Render(Talk({Message("user", "x")})); }),
            "chat template 'the model's own': line 1: 'str object' has no attribute 'nothing'");
  EXPECT_THROW(chat->Render({.messages = 3}), UsageError);
  EXPECT_THROW(chat->Render({.messages = {3}}), UsageError);
  ChatRequest request = Talk({Message("user", "x")});
  request.kwargs = 3;
  EXPECT_THROW(chat->Render(request), UsageError);
}

// The messages of conversations as they are: several users in a row, system anywhere, no content.
TEST(ChatTemplate, BuiltInOnesTakeWhatTheyCanWrite) {
  const auto tokenizer = Vocabulary();
  ChatRequest request = Talk({Message("assistant", "Hello"), Message("user", "a"),
                              Message("user", "b"), Message("system", "s"), Message("user", "c")});
  request.messages.push_back({{"role", "assistant"}, {"content", nullptr}});
  for (const std::string& name : ChatTemplate::Names()) {
    EXPECT_NO_THROW(ChatTemplate(name, *tokenizer).Render(request)) << name;
  }
  EXPECT_THROW(ChatTemplate("gemma", *tokenizer).Render(Talk({Message("system", "x")})),
               UsageError);
  EXPECT_THROW(ChatTemplate("llama-2", *tokenizer).Render(Talk({Message("tool", "x")})),
               UsageError);
}

TEST(ChatTemplate, LeavesTheLastMessageOpen) {
  const auto tokenizer = Vocabulary();
  ChatRequest request = Talk({Message("user", "q"), Message("assistant", "It is ")});
  request.continue_final_message = true;
  EXPECT_THROW(ChatTemplate("chatml", *tokenizer).Render(request), UsageError) << "both";
  request.add_generation_prompt = false;
  EXPECT_TRUE(ChatTemplate("chatml", *tokenizer)
                  .Render(request)
                  .text.bytes()
                  .ends_with("<|im_start|>assistant\nIt is "));
  EXPECT_TRUE(ChatTemplate("llama-3", *tokenizer)
                  .Render(request)
                  .text.bytes()
                  .ends_with("<|end_header_id|>\n\nIt is"))
      << "the template takes the space away";
  request.messages[1]["content"] = "";
  EXPECT_TRUE(ChatTemplate("chatml", *tokenizer)
                  .Render(request)
                  .text.bytes()
                  .ends_with("<|im_start|>assistant\n"));
  request.messages[1]["content"] = {{{"type", "text"}, {"text", "part"}}};
  const ChatTemplate parts(
      "parts",
      {{{"default",
         "{% for m in messages %}{% if m.content is string %}{{ m.content }}"
         "{% else %}{{ m.content[0].text }}{% endif %}<|im_end|>{% endfor %}"}},
       {}},
      *tokenizer);
  EXPECT_EQ(parts.Render(request).text.bytes(), "q<|im_end|>part");
  request.messages[1].erase("content");
  EXPECT_THROW(parts.Render(request), UsageError);
  EXPECT_EQ(MessageOf<UsageError>([&] {
              ChatRequest silent = request;
              silent.messages[1]["content"] = "x";
              ChatTemplate("silent", {{{"default", "y"}}, {}}, *tokenizer).Render(silent);
            }),
            "continue_final_message: chat template 'silent' does not write the last message");
}

// What ends an answer is what the template writes behind one.
TEST(ChatTemplate, StopsWhereTheTemplateEndsAnAnswer) {
  const auto tokenizer = Vocabulary();
  const auto ends_of = [&](const std::string& jinja) {
    const ChatPrompt prompt = ChatTemplate("t", {{{"default", jinja}}, {}}, *tokenizer)
                                  .Render(Talk({Message("user", "x")}));
    EXPECT_EQ(prompt.stop_tokens.front(), tokenizer->eod_id());
    return std::pair(std::vector<int32_t>(prompt.stop_tokens.begin() + 1, prompt.stop_tokens.end()),
                     prompt.stop_strings);
  };
  using Ids = std::vector<int32_t>;
  using Texts = std::vector<std::string>;
  const auto id = [&](const char* name) { return *tokenizer->SpecialId(name); };
  const std::string begin = "{% for m in messages %}{% if m.role == 'user' %}";
  EXPECT_EQ(ends_of(begin + "<s>{{ m.content }}{% else %}{{ m.content }}<|eot_id|>{% endif %}"
                            "{% endfor %}"),
            std::pair(Ids{id("<|eot_id|>")}, Texts{}));
  EXPECT_EQ(ends_of(begin + "<s>{{ m.content }}{% else %}{{ m.content }}{% endif %}{% endfor %}"),
            std::pair(Ids{id("<s>")}, Texts{}))
      << "the next question's beginning";
  EXPECT_EQ(ends_of(begin + "\n\n### Ask:\n{{ m.content }}{% else %}\n### Say:\n{{ m.content }}"
                            "{% endif %}{% endfor %}"),
            std::pair(Ids{}, Texts{"\n### Ask:"}));
  EXPECT_EQ(ends_of(begin + "{{ m.content }}{% else %}{{ m.content }}{% if loop.last %}</s>"
                            "{% else %}<|im_end|>{% endif %}{% endif %}{% endfor %}"),
            std::pair(Ids{id("</s>")}, Texts{}))
      << "a turn that others follow may end otherwise";
  EXPECT_EQ(ends_of("{{ raise_exception('no') if messages | length > 1 }}"),
            std::pair(Ids{}, Texts{}));
}

TEST(ChatTemplate, KnowsHowItsModelCallsToolsAndThinks) {
  const auto tokenizer = Vocabulary();
  const auto format = [&](const char* jinja) {
    return NameOf(ChatTemplate("t", {{{"default", jinja}}, {}}, *tokenizer).tool_format());
  };
  EXPECT_EQ(format("{{ tools }}<tool_call>"), "hermes");
  EXPECT_EQ(format("[TOOL_CALLS]"), "mistral");
  EXPECT_EQ(format("<|python_tag|>"), "llama3_json");
  EXPECT_EQ(format("<tool_call><function=name>"), "none");
  EXPECT_EQ(ToolFormatNamed("hermes"), ToolFormat::kHermes);
  EXPECT_THROW(ToolFormatNamed("herms"), UsageError);
  const ChatTemplate thinks("t", {{{"default", "{{ tools }}<think>"}}, {}}, *tokenizer);
  EXPECT_TRUE(thinks.thinks());
  EXPECT_TRUE(thinks.takes_tools());
  EXPECT_FALSE(ChatTemplate("plain", *tokenizer).takes_tools());
}

TEST(ChatTemplate, RefusesWhatItCannotWrite) {
  const auto bytes = MakeByteTokenizer();
  EXPECT_EQ(MessageOf<InputError>([&] { ChatTemplate("chatml", *bytes); }),
            "chat template 'chatml' needs a special token '<|im_start|>', which this vocabulary "
            "lacks");
  EXPECT_THROW(ChatTemplate("chatm", *bytes), UsageError);
}

}  // namespace
}  // namespace trimtab
