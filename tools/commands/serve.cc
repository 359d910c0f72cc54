#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/chat/tool_format.h"
#include "engine/grammar/token_grammar.h"
#include "engine/infer/api/engine.h"
#include "tools/cli/command.h"
#include "tools/cli/serving_flags.h"
#include "tools/cli/signals.h"
#include "tools/serve/address.h"
#include "tools/serve/api_key.h"
#include "tools/serve/cors.h"
#include "tools/serve/http_server.h"

namespace trimtab {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(50);

class ServeCommand : public Command {
 public:
  std::string name() const override { return "serve"; }
  std::string summary() const override { return "answer requests over HTTP, as OpenAI's API does"; }

  void Declare(FlagSet& flags) override {
    flags.Group("Server");
    flags.Text("--host ADDRESS", options_.host,
               {"address to listen on", "0.0.0.0: every address of this machine."});
    flags.Integer("--port", options_.port, 0, 65535, "port to listen on; 0: a free one");
    flags.Text("--api-key-file FILE", key_file_,
               {"file with the key that clients must send",
                "They send it as 'Authorization: Bearer KEY'."});
    flags.Text("--cors-origin ORIGIN", options_.cors_origin,
               {"origin whose pages may use the server; *: all", "As https://chat.example."});
    flags.Integer("--max-requests", options_.max_requests, 1, 4096,
                  "most requests at once; more are refused");
    flags.Bytes("--max-body", options_.max_body_bytes, "most bytes of a request");
    flags.Number("--request-timeout", options_.request_timeout_s, 0.001, 1e6,
                 "seconds after which an unfinished answer is abandoned");
    flags.Switch("--strict", strict_,
                 {"refuse unknown fields of requests",
                  "Otherwise they are ignored, and named in the header X-Trimtab-Ignored."});
    flags.Group("Answers");
    flags.Text("--name NAME", name_, "what clients call the model [its own name]");
    flags.Text("--chat-template NAME", template_,
               {"format of conversations [the model's own]",
                "A file with a Jinja template, or chatml, gemma, llama-2, llama-3 or plain."});
    flags.Text("--tool-call-parser NAME", tool_format_,
               {"format of the model's tool calls [as in its template]",
                fmt::format("One of: {}.", fmt::join(ToolFormatNames(), ", "))});
    flags.Choice("--pooling", pooling_, {"mean", "last"},
                 {"state that embeddings are made of", "The mean of all states, or the last one."});
    serving_.Declare(flags);
    flags.ShortList({"--load", "--load-hf", "--config", "--host", "--port", "--api-key-file",
                     "--layout", "--device", "--weights", "--max-requests"});
  }

  int Run(const OutputOptions& output) override {
    if (!key_file_.empty()) options_.api_key = ReadApiKey(key_file_);
    options_.host = HostOf(options_.host);
    RequireOrigin(options_.cors_origin);
    const std::optional<ToolFormat> tool_format =
        tool_format_.empty() ? std::nullopt : std::optional(ToolFormatNamed(tool_format_));
    const std::unique_ptr<WeightSource> weights = serving_.OpenWeights();
    const std::unique_ptr<Tokenizer> tokenizer = serving_.OpenTokenizerOf(*weights);
    ServedModel model = {.name = name_.empty() ? weights->model().name : name_,
                         .tokenizer = tokenizer.get(),
                         .end_tokens = serving_.EndTokensOf(*weights)};
    const std::unique_ptr<ChatTemplate> chat =
        FindChatTemplate(template_, *tokenizer, model.no_chat);
    model.chat = chat.get();
    model.tool_format = tool_format;
    const auto grammars = std::make_shared<GrammarCompiler>(
        std::make_shared<const TokenVocabulary>(*tokenizer, weights->model().vocab_size));
    model.grammars = grammars.get();
    if (serving_.Follows(*weights, nullptr, std::nullopt, grammars)) return 0;
    const std::unique_ptr<Engine> engine =
        serving_.OpenEngine(*weights, nullptr, std::nullopt, grammars);
    model.limits = engine->limits();
    model.vocab_size = engine->vocab_size();
    model.embedding_size = weights->model().hidden_size;
    model.pooling = pooling_ == "mean" ? Pooling::kMean : Pooling::kLast;
    model.strict = strict_;
    LogInfo("{}: {}", model.name,
            chat == nullptr ? "completions only, " + model.no_chat
                            : fmt::format("completions, and chats as '{}'", chat->name()));
    HttpServer server(*engine, std::move(model), options_);
    CatchStopSignals(StopNotice::kAnswers);
    const std::string url = UrlOf({options_.host, server.port()});
    if (output.json) {
      PrintJson({{"schema_version", 1}, {"url", url}, {"port", server.port()}}, /*one_line=*/true);
    } else {
      Print(url + "\n");
    }
    return Wait(server);
  }

 private:
  static int Wait(HttpServer& server) {
    while (!server.finished()) {
      if (RequestedStop() != StopLevel::kNone || !server.failure().empty()) server.Drain();
      if (RequestedStop() == StopLevel::kCancel) server.Cancel();
      std::this_thread::sleep_for(kPoll);
    }
    if (!server.failure().empty()) throw Error(ExitCode::kInternal, server.failure());
    return StopExitCode();
  }

  ServingFlags serving_;
  HttpServerOptions options_;
  std::string name_;
  std::string template_;
  std::string tool_format_;
  std::string key_file_;
  std::string pooling_ = "mean";
  bool strict_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeServeCommand() { return std::make_unique<ServeCommand>(); }

}  // namespace trimtab
