// The commands that serve, from a model trained here, as a shell runs them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/engine/data/data_test_util.h"
#include "tests/engine/data/train_vocabulary.h"
#include "tests/tools/shell.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr char kRun[] = R"({
  "model": {"name": "tiny", "vocab_size": 600, "hidden_size": 16, "num_layers": 1, "num_heads": 2,
            "num_kv_heads": 2, "ffn_hidden_size": 32, "max_sequence_length": 256},
  "global_batch": 4, "sequence_length": 16, "steps": 2})";

class Serving : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::string(std::getenv("TEST_TMPDIR")) + "/serving";
    std::filesystem::create_directories(folder_);
    WriteBytes(folder_ + "/run.json", kRun);
    WriteBytes(folder_ + "/tokenizer.json",
               VocabularyJson(TrainMerges(ManyScripts(), 200), "llama3"));
    WriteBytes(folder_ + "/tokenizer_config.json", R"({"eos_token": "<|end|>"})");
    std::string text;
    for (int i = 0; i < 20; ++i) {
      for (const std::string& line : ManyScripts()) text += line + "\n";
    }
    WriteBytes(folder_ + "/text.txt", text);
    Ran("data build --input text.txt --out data --tokenizer tokenizer.json");
    Ran("train --config run.json --data data --steps 2 --checkpoint model");
    // The dataset keeps what it needs.
    std::filesystem::remove(folder_ + "/tokenizer.json");
  }

  /// Runs lines of the shell in the folder, where `trimtab` is the command.
  static Outcome Script(const std::string& lines) {
    WriteBytes(folder_ + "/script", "trimtab() { " +
                                        std::filesystem::absolute("tools/trimtab").string() +
                                        " \"$@\"; }\ncd " + folder_ + "\n" + lines);
    return Shell("bash " + folder_ + "/script");
  }

  static Outcome Ran(const std::string& command) {
    const Outcome outcome = Script("trimtab " + command);
    EXPECT_EQ(outcome.status, 0) << command << "\n" << outcome.output;
    return outcome;
  }

  static inline std::string folder_;
};

/// Starts a server, waits until it says where it is, and names the process and its URL.
constexpr char kStart[] =
    "rm -f url\n"  // of the server before
    "\"$TRIMTAB\" serve --load model --port 0 --chat-template $TEMPLATE $FLAGS >url 2>log &\n"
    "server=$!\n"
    "for i in $(seq 300); do [ -s url ] && break; sleep 0.1; done\n"
    "url=$(cat url)\n";

std::string Start(const std::string& flags = "", const std::string& chat_template = "plain") {
  return "TRIMTAB=" + std::filesystem::absolute("tools/trimtab").string() + "\nFLAGS='" + flags +
         "'\nTEMPLATE=" + chat_template + "\n" + kStart;
}

TEST_F(Serving, AnswersAndDrains) {
  const Outcome outcome = Script(
      Start() +
      "curl -sS --max-time 60 $url/v1/completions "
      "-d '{\"model\": \"tiny\", \"prompt\": \"It is\", \"max_tokens\": 5, \"temperature\": 0}'\n"
      "curl -sS --max-time 60 $url/v1/chat/completions -d '{\"model\": \"tiny\", \"messages\": "
      "[{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 5}'\n"
      "kill -TERM $server; wait $server; echo \"exit code $?\"; cat log\n");
  std::istringstream lines(outcome.output);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line)) << outcome.output;
  EXPECT_EQ(json::parse(line)["usage"]["completion_tokens"], 5);
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(json::parse(line)["choices"][0]["message"]["role"], "assistant");
  EXPECT_NE(outcome.output.find("exit code 143"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("finishing the answers that are running"), std::string::npos)
      << outcome.output;
  EXPECT_EQ(outcome.output.find("saving"), std::string::npos) << outcome.output;
}

// The grammar stands in for a model that has learnt to call tools.
TEST_F(Serving, ReadsCallsOfToolsAsItIsTold) {
  WriteBytes(folder_ + "/tools.jinja",
             "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
             "{% if tools %}{{ tools | tojson }}\n{% endif %}assistant:");
  const json asked = {
      {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
      {"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}},
      {"guided_choice", {R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)"}},
      {"max_tokens", 90}};
  WriteBytes(folder_ + "/asked.json", asked.dump());
  const auto answer = [](const std::string& flags) {
    const Outcome outcome =
        Script(Start(flags, "tools.jinja") +
               "curl -sS --max-time 60 $url/v1/chat/completions -d @asked.json\n"
               "kill -INT $server; wait $server\n");
    return json::parse(outcome.output, nullptr, /*exceptions=*/false);
  };
  const json read = answer("--tool-call-parser hermes")["choices"][0];
  EXPECT_EQ(read["finish_reason"], "tool_calls") << read;
  EXPECT_EQ(read["message"]["tool_calls"][0]["function"],
            json({{"name", "f"}, {"arguments", R"({"a": 1})"}}));
  const json left = answer("--tool-call-parser none")["choices"][0];
  EXPECT_EQ(left["message"]["content"], asked["guided_choice"][0]) << left;
  const json refused = answer("")["error"];
  EXPECT_NE(refused["message"].get<std::string>().find("does not show how calls are written"),
            std::string::npos)
      << refused;
}

// As it may stand in a URL, and as the system writes it.
TEST_F(Serving, ListensOnAnAddressOfIPv6) {
  if (Shell("test -s /proc/net/if_inet6").status != 0) GTEST_SKIP() << "no IPv6 here";
  for (const char* host : {"::1", "[::1]"}) {
    const Outcome outcome = Script(Start(std::string("--host ") + host) +
                                   "echo $url\n"
                                   "trimtab bench -q --json --url $url --workload 8/4 --requests 2 "
                                   "--concurrency 1 2>&1 | head -1\n"
                                   "kill -INT $server; wait $server\n");
    EXPECT_TRUE(outcome.output.starts_with("http://[::1]:")) << outcome.output;
    EXPECT_EQ(outcome.output.find("cannot connect"), std::string::npos) << outcome.output;
  }
}

TEST_F(Serving, LoadsAServerAndAnEngine) {
  const Outcome outcome =
      Script(Start() +
             "trimtab bench --json -q --url $url --workload 8/uniform:4-8 --requests 6 "
             "--concurrency 3 >over_http.json\n"
             "trimtab bench --json -q --load model --workload 8/4 --requests 6 --rate 500 "
             "--limits e2e\\<100s >in_process.json\n"
             "kill -INT $server; wait $server\n");
  for (const char* name : {"over_http", "in_process"}) {
    const json report =
        json::parse(ReadBytes(folder_ + "/" + name + ".json"), nullptr, /*exceptions=*/false);
    ASSERT_TRUE(report.is_object()) << name << ": " << outcome.output;
    EXPECT_EQ(report["requests"], 6);
    EXPECT_EQ(report["failed"], 0) << report["first_failure"];
    EXPECT_GT(report["output_tokens"], 20);
    EXPECT_GT(report["ttft_ms"]["p99"], 0);
    EXPECT_GT(report["goodput"], 0);
  }
}

// The model's sequences have 256 tokens: of prompts of 200 to 250 some leave no room for an answer
// of 20.
TEST_F(Serving, TellsOfAnswersThatAreTooShort) {
  const std::string bench = "bench --json -q --load model --requests 12 --concurrency 3 ";
  const Outcome some = Script("trimtab " + bench +
                              "--workload uniform:200-250/20 2>/dev/null; echo \"exit code $?\"");
  EXPECT_NE(some.output.find("exit code 5"), std::string::npos) << some.output;
  const json report = json::parse(some.output.substr(0, some.output.rfind('}') + 1));
  EXPECT_GT(report["failed"], 0);
  EXPECT_LT(report["failed"], 12);
  EXPECT_NE(report["first_failure"].get<std::string>().find("of 20 tokens came"),
            std::string::npos);
  const Outcome all =
      Script("trimtab " + bench + "--workload 250/20 >/dev/null; echo \"exit code $?\"");
  EXPECT_NE(all.output.find("exit code 6"), std::string::npos) << all.output;
}

TEST_F(Serving, ChatsOnPipes) {
  const Outcome outcome = Script(
      "printf 'Hello\\n/reset\\nAnd you?\\n' | trimtab chat -q --load model --chat-template plain "
      "--max-tokens 4 --system 'Be kind.' >answers; echo $?");
  EXPECT_EQ(outcome.output, "0\n");
  const std::string answers = ReadBytes(folder_ + "/answers");
  EXPECT_GE(std::count(answers.begin(), answers.end(), '\n'), 2);
}

// A script reads no warnings.
TEST_F(Serving, AChatOnPipesSaysThatAMessageWasNotAnswered) {
  const std::string chat = " | trimtab chat -q --load model --chat-template plain --max-tokens 4 ";
  const Outcome one = Script("(head -c 4000 /dev/zero | tr '\\0' 'a'; printf '\nHello\n')" + chat +
                             ">answers 2>warnings; echo $?");
  EXPECT_EQ(one.output, "5\n");
  const std::string warnings = ReadBytes(folder_ + "/warnings");
  EXPECT_NE(warnings.find("expected fewer"), std::string::npos) << warnings;
  const std::string answers = ReadBytes(folder_ + "/answers");
  EXPECT_GE(std::count(answers.begin(), answers.end(), '\n'), 1) << "the next one is answered";
  const Outcome endless = Script("cat /dev/zero" + chat + "2>&1 >/dev/null; echo $?");
  EXPECT_NE(endless.output.find("standard input: a line of more than 1.00 MiB"), std::string::npos)
      << endless.output;
  EXPECT_TRUE(endless.output.ends_with("2\n")) << endless.output;
}

TEST_F(Serving, RefusesWithOneLine) {
  struct Case {
    const char* command;
    int status;
    const char* message;
  };
  for (const Case& bad :
       {Case{"serve --load nothing", 3, "nothing"},
        Case{"serve --load model --host ''", 2, "--host: no address"},
        Case{"serve --load model --api-key-file run.json", 3, "run.json: several lines"},
        Case{"serve --load model --chat-template chatm", 2, "chatml"},
        Case{"serve --load model --chat-template chatml", 3, "<|im_start|>"},
        Case{"serve --load model --tool-call-parser herms", 2, "did you mean 'hermes'"},
        Case{"serve --load model --layout dp=1048576", 4, "1048576 ranks"},
        Case{"serve --load model --host 203.0.113.1", 6, "cannot listen"},
        Case{"serve --load model --api-key-file nothing", 3, "nothing"},
        Case{"chat --load model", 2, "--chat-template"},
        Case{"chat --load model --json", 2, "--json"},
        Case{"bench --load model", 2, "--concurrency"},
        Case{"bench --load model --rate 1 --concurrency 1", 2, "either"},
        Case{"bench --load model --rate 1 --workload 8", 2, "INPUT/OUTPUT"},
        Case{"bench --url http://127.0.0.1:1 --rate 1", 6, "cannot connect"},
        Case{"bench --url http://127.0.0.1:1 --rate 1 --api-key-file run.json", 3, "several lines"},
        Case{"bench --url http://x --load model --rate 1", 2, "--load"},
        Case{"bench --url http://[::1 --rate 1", 2, "http://[::1]:PORT"},
        Case{"bench --url http://[::1]:1 --rate 1", 6, "cannot connect"},
        Case{"data build --input text.txt --out d --tokenizer run.json", 3, "run.json: $"}}) {
    const Outcome outcome = Script(std::string("trimtab ") + bad.command);
    EXPECT_EQ(outcome.status, bad.status) << bad.command << "\n" << outcome.output;
    EXPECT_NE(outcome.output.find(bad.message), std::string::npos) << bad.command << "\n"
                                                                   << outcome.output;
  }
}

}  // namespace
}  // namespace trimtab
