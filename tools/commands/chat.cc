#include <unistd.h>

#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/chat/chat_template.h"
#include "engine/infer/api/engine.h"
#include "tools/cli/command.h"
#include "tools/cli/serving_flags.h"
#include "tools/cli/signals.h"
#include "tools/serve/reply/answer.h"

namespace trimtab {
namespace {

constexpr size_t kMostMessageBytes = size_t{1} << 20;

bool OnTerminal() { return ::isatty(STDIN_FILENO) != 0; }

class ChatCommand : public Command {
 public:
  std::string name() const override { return "chat"; }
  std::string summary() const override { return "talk with a model in the terminal"; }

  void Declare(FlagSet& flags) override {
    serving_.Declare(flags);
    sampling_.Declare(flags);
    flags.Integer("--max-tokens", max_tokens_, 1, std::numeric_limits<int32_t>::max(),
                  "most tokens of an answer");
    flags.Integer("--seed", seed_, 0, std::numeric_limits<int64_t>::max(), "random seed");
    flags.Group("Conversation");
    flags.Text("--system TEXT", system_, "system prompt");
    flags.Text("--chat-template NAME", template_,
               {"format of the conversation [the model's own]",
                "A file with a Jinja template, or chatml, gemma, llama-2, llama-3 or plain."});
    flags.ShortList({"--load", "--load-hf", "--config", "--layout", "--device", "--weights",
                     "--system", "--temperature", "--max-tokens", "--chat-template"});
  }

  int Run(const OutputOptions& output) override {
    if (output.json) throw UsageError("--json: chat is for people; use serve for programs");
    sampling_.RequireSensible();
    const std::unique_ptr<WeightSource> weights = serving_.OpenWeights();
    tokenizer_ = serving_.OpenTokenizerOf(*weights);
    ends_ = serving_.EndTokensOf(*weights);
    std::string why;
    chat_ = FindChatTemplate(template_, *tokenizer_, why);
    if (chat_ == nullptr) throw UsageError(why);
    if (serving_.Follows(*weights)) return 0;
    engine_ = serving_.OpenEngine(*weights);
    LogInfo("{}, conversations as '{}'; Ctrl-C stops an answer, /reset begins anew, Ctrl-D leaves",
            weights->model().name, chat_->name());
    Reset();
    std::string line;
    while (Ask(line)) {
      if (line == "/reset") {
        Reset();
      } else if (!line.empty()) {
        Answer(line);
      }
    }
    // Who types sees the warning, and asks otherwise; a script only sees how the command ends.
    return static_cast<int>(unanswered_ && !OnTerminal() ? ExitCode::kPartial : ExitCode::kOk);
  }

 private:
  void Reset() {
    messages_ = nlohmann::ordered_json::array();
    if (!system_.empty()) Say("system", system_);
  }

  void Say(const char* role, std::string text) {
    messages_.push_back({{"role", role}, {"content", std::move(text)}});
  }

  static bool Ask(std::string& line) {
    if (OnTerminal()) fmt::print(stderr, "> ");
    line.clear();
    for (char c = 0; std::cin.get(c);) {
      if (c == '\n') return true;
      if (line.size() == kMostMessageBytes) {
        throw UsageError(fmt::format("standard input: a line of more than {}; expected a message",
                                     FormatBytes(kMostMessageBytes)));
      }
      line.push_back(c);
    }
    if (OnTerminal()) fmt::print(stderr, "\n");
    return !line.empty();
  }

  void Answer(const std::string& question) {
    Say("user", question);
    ChatPrompt prompt = chat_->Render({.messages = messages_});
    GenerationRequest request;
    request.prompt = std::move(prompt.tokens);
    request.max_tokens = max_tokens_;
    request.sampling = sampling_.options;
    request.sampling.seed = static_cast<uint64_t>(seed_);
    request.stop_tokens = std::move(prompt.stop_tokens);
    request.stop_tokens.insert(request.stop_tokens.end(), ends_.begin(), ends_.end());
    std::vector<std::string> stops = std::move(prompt.stop_strings);
    stops.insert(stops.end(), sampling_.stops.begin(), sampling_.stops.end());
    const auto taken = engine_->AddRequest(std::move(request));
    if (const auto* refusal = std::get_if<Refusal>(&taken)) {
      messages_.erase(messages_.size() - 1);
      LogWarning("{}; /reset begins anew", refusal->reason);
      unanswered_ = true;
      return;
    }
    Say("assistant", Stream(std::get<RequestId>(taken), std::move(stops)));
  }

  /// Prints the answer while it grows; Ctrl-C ends it where it is.
  std::string Stream(RequestId id, std::vector<std::string> stops) {
    trimtab::Answer answer(*tokenizer_, {.stops = std::move(stops), .trim_start = true});
    std::string whole;
    CatchStopSignals(StopNotice::kNone);
    while (!answer.ended() && RequestedStop() == StopLevel::kNone) {
      for (const RequestUpdate& update : engine_->Step()) {
        const std::string text = answer.Add(update.tokens, update.finish).content;
        Print(text);
        whole += text;
        if (update.failure.empty()) continue;
        LogWarning("{}; /reset begins anew", update.failure);
        unanswered_ = true;
      }
    }
    engine_->Abort(id);
    ReleaseStopSignals();
    Print("\n");
    return whole;
  }

  ServingFlags serving_;
  SamplingFlags sampling_;
  std::string template_;
  std::string system_;
  int64_t max_tokens_ = 512;
  int64_t seed_ = 0;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<int32_t> ends_;  // of an answer, beside those of tokenizer and template
  std::unique_ptr<ChatTemplate> chat_;
  std::unique_ptr<Engine> engine_;
  nlohmann::ordered_json messages_;
  bool unanswered_ = false;  // a message was
};

}  // namespace

std::unique_ptr<Command> MakeChatCommand() { return std::make_unique<ChatCommand>(); }

}  // namespace trimtab
