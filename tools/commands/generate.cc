#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/infer/api/engine.h"
#include "engine/infer/api/text_stream.h"
#include "engine/infer/scheduler/clock.h"
#include "tools/cli/command.h"
#include "tools/cli/serving_flags.h"
#include "tools/cli/signals.h"
#include "tools/cli/table.h"

namespace trimtab {
namespace {

/// One prompt and what follows it.
struct Answer {
  std::string prompt;
  int64_t prompt_tokens = 0;
  TextStream stream;
  std::string text{};
  std::vector<int32_t> tokens{};
  std::string finish = "none";  // as the update says, or "stop" for a text of --stop
  std::string failure{};        // likewise
};

class GenerateCommand : public Command {
 public:
  std::string name() const override { return "generate"; }
  std::string summary() const override { return "continue prompts with a model"; }

  void Declare(FlagSet& flags) override {
    flags.Group("Prompts");
    flags.Texts("--prompt TEXT", prompts_, {"text to continue", "May be given several times."});
    flags.Text("--prompts FILE", prompts_file_, "file of texts to continue, one per line");
    flags.Integer("--max-tokens", max_tokens_, 1, std::numeric_limits<int32_t>::max(),
                  "most tokens of an answer");
    serving_.Declare(flags);
    sampling_.Declare(flags);
    flags.Integer("--seed", seed_, 0, std::numeric_limits<int64_t>::max(),
                  {"random seed", "The same seed draws the same."});
    flags.ShortList({"--load", "--load-hf", "--prompt", "--prompts", "--max-tokens",
                     "--temperature", "--seed", "--layout", "--device", "--weights"});
  }

  int Run(const OutputOptions& output) override {
    const std::vector<std::string> prompts = Prompts();
    sampling_.RequireSensible();
    const std::unique_ptr<WeightSource> weights = serving_.OpenWeights();
    tokenizer_ = serving_.OpenTokenizerOf(*weights);
    ends_ = serving_.EndTokensOf(*weights);
    if (serving_.Follows(*weights)) return 0;
    const std::unique_ptr<Engine> engine = serving_.OpenEngine(*weights);
    CatchStopSignals();
    for (const std::string& prompt : prompts) Ask(*engine, prompt);
    const SteadyClock clock;
    const double begin = clock.Now();
    while (engine->HasWork()) {
      if (RequestedStop() != StopLevel::kNone) {
        LogWarning("stopped");
        break;
      }
      for (const RequestUpdate& update : engine->Step()) Take(*engine, update, output);
      ShowFinished(output);
    }
    for (auto& [id, answer] : answers_) Close(id, answer, output);
    ShowFinished(output);
    const EngineMetrics metrics = engine->metrics();
    const double seconds = clock.Now() - begin;
    LogInfo("{} from {} of prompts in {}: {:.1f} tokens/s",
            Counted(metrics.generated_tokens, "token"), Counted(metrics.prompt_tokens, "token"),
            FormatSeconds(seconds), static_cast<double>(metrics.generated_tokens) / seconds);
    LogAcceptance(metrics);
    if (RequestedStop() != StopLevel::kNone) return StopExitCode();
    if (!failure_.empty()) throw InputError(failure_);
    return 0;
  }

 private:
  std::vector<std::string> Prompts() const {
    std::vector<std::string> prompts = prompts_;
    if (std::ranges::any_of(prompts, &std::string::empty)) {
      throw UsageError("--prompt: the text is empty; expected some text");
    }
    if (!prompts_file_.empty()) {
      std::ifstream file(prompts_file_);
      const bool folder = std::filesystem::is_directory(prompts_file_);
      if (!file || folder) {
        const char* why = folder ? "is a folder" : "cannot be read";
        throw InputError(fmt::format("{}: {}; expected a file of prompts", prompts_file_, why));
      }
      int64_t number = 0;
      for (std::string line; std::getline(file, line);) {
        ++number;
        if (line.ends_with('\r')) line.pop_back();
        if (line.empty()) {
          throw InputError(
              fmt::format("{}:{}: an empty line; expected a prompt a line", prompts_file_, number));
        }
        prompts.push_back(line);
      }
      if (number == 0) {
        throw InputError(fmt::format("{}: is empty; expected a prompt a line", prompts_file_));
      }
    }
    if (prompts.empty()) throw UsageError("expected --prompt or --prompts: what to continue");
    return prompts;
  }

  void Ask(Engine& engine, const std::string& prompt) {
    GenerationRequest request;
    request.prompt = tokenizer_->prompt_prefix();
    tokenizer_->Encode(prompt, SpecialNames::kTokens, request.prompt);
    request.max_tokens = max_tokens_;
    request.sampling = sampling_.options;
    request.sampling.seed = static_cast<uint64_t>(seed_);
    request.stop_tokens = ends_;
    request.stop_tokens.push_back(tokenizer_->eod_id());
    const auto prompt_tokens = std::ssize(request.prompt);
    const auto taken = engine.AddRequest(std::move(request));
    if (const auto* refusal = std::get_if<Refusal>(&taken)) {
      throw UsageError(fmt::format("prompt {}: {}", answers_.size() + 1, refusal->reason));
    }
    answers_.emplace(std::get<RequestId>(taken),
                     Answer{prompt, prompt_tokens, TextStream(sampling_.stops)});
  }

  void Take(Engine& engine, const RequestUpdate& update, const OutputOptions& output) {
    Answer& answer = answers_.at(update.id);
    for (const SampledToken& token : update.tokens) {
      answer.tokens.push_back(token.id);
      Add(answer, answer.stream.Add(tokenizer_->BytesOf(token.id)), update.id, output);
      if (answer.stream.stopped()) break;
    }
    if (answer.stream.stopped()) {
      if (update.finish == FinishReason::kNone) engine.Abort(update.id);
      answer.finish = Name(FinishReason::kStop);
    } else if (update.finish != FinishReason::kNone) {
      answer.finish = Name(update.finish);
      answer.failure = update.failure;
      Add(answer, answer.stream.Finish(), update.id, output);
    }
  }

  /// The first answer that is not finished is printed while it grows.
  void Add(Answer& answer, const std::string& text, RequestId id, const OutputOptions& output) {
    answer.text += text;
    if (!output.json && id == answers_.begin()->first && !text.empty()) Print(text);
  }

  /// An interrupted answer ends where it is.
  void Close(RequestId id, Answer& answer, const OutputOptions& output) {
    if (answer.finish != "none") return;
    answer.finish = "interrupted";
    Add(answer, answer.stream.Finish(), id, output);
  }

  /// Answers in the order of their prompts, each once it is whole.
  void ShowFinished(const OutputOptions& output) {
    while (!answers_.empty() && answers_.begin()->second.finish != "none") {
      const Answer& answer = answers_.begin()->second;
      if (output.json) {
        nlohmann::json line = {{"schema_version", 1},     {"prompt", answer.prompt},
                               {"text", answer.text},     {"prompt_tokens", answer.prompt_tokens},
                               {"tokens", answer.tokens}, {"finish", answer.finish}};
        if (!answer.failure.empty()) line["failure"] = answer.failure;
        PrintJson(line, /*one_line=*/true);
      } else {
        Print("\n");
      }
      ++shown_;
      if (!answer.failure.empty() && failure_.empty()) {
        failure_ = fmt::format("prompt {}: {}", shown_, answer.failure);
      }
      answers_.erase(answers_.begin());
      // What the next one has so far.
      if (!answers_.empty() && !output.json) Print(answers_.begin()->second.text);
    }
  }

  ServingFlags serving_;
  SamplingFlags sampling_;
  std::vector<std::string> prompts_;
  std::string prompts_file_;
  int64_t max_tokens_ = 128;
  int64_t seed_ = 0;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<int32_t> ends_;            // of an answer, beside the tokenizer's own
  std::map<RequestId, Answer> answers_;  // that are not printed yet
  int64_t shown_ = 0;                    // those that are
  std::string failure_;                  // of the first that has failed
};

}  // namespace

std::unique_ptr<Command> MakeGenerateCommand() { return std::make_unique<GenerateCommand>(); }

}  // namespace trimtab
