#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/chat/tool_format.h"
#include "engine/grammar/token_grammar.h"
#include "engine/infer/engine.h"
#include "tools/command.h"
#include "tools/serve/address.h"
#include "tools/serve/api_key.h"
#include "tools/serve/cors.h"
#include "tools/serve/http_server.h"
#include "tools/serving_flags.h"
#include "tools/signals.h"

namespace trimtab {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(50);

class ServeCommand : public Command {
 public:
  std::string name() const override { return "serve"; }
  std::string summary() const override {
    return "answer completions, chats and embeddings over HTTP, as OpenAI's API";
  }

  void Declare(FlagSet& flags) override {
    serving_.Declare(flags);
    flags.Text("--host", options_.host, "address to listen on; 0.0.0.0: every one of this machine");
    flags.Integer("--port", options_.port, 0, 65535, "port to listen on; 0: one that is free");
    flags.Text("--name", name_, "what clients call the model; if left out, its own name");
    flags.Text("--chat-template", template_,
               "how conversations are written: a file with a Jinja template, or chatml, gemma, "
               "llama-2, llama-3 or plain; if left out, the one that came with the model");
    flags.Text("--tool-call-parser", tool_format_,
               fmt::format("how the model writes calls of tools: {}; if left out, as its template "
                           "shows",
                           fmt::join(ToolFormatNames(), ", ")));
    flags.Integer("--max-requests", options_.max_requests, 1, 4096,
                  "requests that are answered or wait at once; more are refused");
    flags.Bytes("--max-body", options_.max_body_bytes, "size of a request at most");
    flags.Number("--request-timeout", options_.request_timeout_s, 0.001, 1e6,
                 "seconds after which an unfinished answer is abandoned");
    flags.Text("--api-key-file", key_file_,
               "file with the key that clients must send as 'Authorization: Bearer KEY'");
    flags.Text("--cors-origin", options_.cors_origin,
               "origin whose pages may use the server, as https://chat.example; *: all");
    flags.Choice("--pooling", pooling_, {"mean", "last"},
                 "what embeddings are made of: the mean of all states, or the last one");
    flags.Switch(
        "--strict", strict_,
        "refuse fields of requests that are unknown; otherwise they are ignored, and named "
        "in the header X-Trimtab-Ignored");
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
