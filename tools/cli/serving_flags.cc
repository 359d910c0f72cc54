#include "tools/cli/serving_flags.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/comm/mpi_launch.h"
#include "engine/config/json/strict_json.h"
#include "engine/data/tokenizer/end_tokens.h"
#include "engine/data/tokenizer/open_tokenizer.h"
#include "engine/families/load_config.h"
#include "engine/infer/replicas/make_engine.h"
#include "engine/infer/scheduler/acceptance.h"
#include "engine/infer/serving_json.h"
#include "tools/cli/common_flags.h"
#include "tools/cli/signals.h"
#include "tools/cli/table.h"

namespace trimtab {
namespace {

constexpr char kStored[] = "stored";  // of --weights: as the source has them

}  // namespace

void SourceFlags::Declare(FlagSet& flags) {
  flags.Group("Model");
  flags.Text("--load FOLDER", load_,
             {"checkpoint whose weights to use", "Of 'trimtab train' or of 'trimtab quantize'."});
  flags.Text("--load-hf FOLDER", load_hf_,
             {"Hugging Face folder whose weights to use",
              "With config.json and safetensors files. Instead of --load."});
  flags.Text(
      "--tokenizer FILE", tokenizer_,
      {"tokenizer, or 'byte' [the model's own]",
       "A tokenizer.json, a tokenizer.model or a folder with one. The default is the "
       "tokenizer in the model's folder, or else that of the dataset which the checkpoint was "
       "trained on."});
}

void ServingFlags::Declare(FlagSet& flags) {
  flags_ = &flags;
  source_.Declare(flags);
  flags.Group("Engine");
  flags.Text("--config FILE", config_file_,
             {"serving configuration or report.json to run",
              "From a training RUN.json, or the report of a training search, only the device is "
              "used; its model must be that of the weights."});
  flags.Text("--layout KEY=V,...", layout_,
             {"how the model is split over ranks: tp=2,pp=2,...", "dp=2 makes two replicas."});
  flags.Integer("--prefill", config_.prefill, 0, kMax32,
                {"replicas that only compute prompts",
                 "The others decode what these hand over. With 0, all do both."});
  flags.Choice("--device", device_, kDeviceNames, "device to compute on");
  flags.Integer("--threads-per-rank", config_.threads_per_rank, 0, 4096,
                "threads of each cpu rank [an equal share of the cores]");
  flags.Bytes("--memory-per-rank", config_.memory_per_rank_bytes,
              "memory limit of each rank, e.g. 8GiB");
  std::vector<std::string> weights = WeightNames();
  weights.emplace_back(kStored);
  flags.Choice("--weights FORMAT", weights_, weights,
               {"format of the weights of GEMMs", "stored: as they are in the folder."});
  flags.Choice("--cache FORMAT", cache_, CacheNames(), "format of the KV cache");
  flags.Integer("--cache-tokens", cache_tokens_, 0, kMax32,
                "tokens that the KV cache holds [--sequences of the full length]");
  flags.Integer("--block-size", config_.block_size, 1, 4096, "tokens of a block of the KV cache");
  flags.Integer("--sequences", config_.limits.sequences, 1, 65536,
                "sequences to decode at the same time");
  flags.Integer("--tokens-per-step", config_.limits.tokens_per_step, 1, kMax32,
                {"most tokens of a step", "Longer prompts are split."});
  flags.Integer("--max-length", max_length_, 0, kMax32,
                "most tokens of prompt and answer [the model's maximum]");
  flags.Integer("--lookup", config_.lookup_tokens, 0, kMostProposed,
                {"tokens to propose by prompt lookup",
                 "Looks up what followed the same words earlier in the text. The answer stays the "
                 "same."});
  flags.Text(
      "--draft FOLDER", draft_,
      {"smaller model that proposes tokens",
       "As --load or --load-hf take it, with the same vocabulary. The answer stays the same."});
  flags.Integer("--draft-tokens", draft_tokens_, 1, kMostProposed,
                "tokens that --draft proposes per sequence and step");
  flags.Switch("--no-prefix-cache", no_prefix_cache_, "compute every prompt from its first token");
}

std::unique_ptr<WeightSource> SourceFlags::OpenWeights() const {
  if (load_.empty() == load_hf_.empty()) {
    throw UsageError(load_.empty() ? "expected --load or --load-hf: which model"
                                   : "--load-hf contradicts --load");
  }
  if (load_.empty()) RequireHuggingFaceFolder(load_hf_);
  return load_.empty() ? OpenHuggingFaceWeights(load_hf_, LoadModelConfig(load_hf_))
                       : OpenCheckpointWeights(load_);
}

std::unique_ptr<Tokenizer> SourceFlags::FindTokenizer(const WeightSource& weights) const {
  const int64_t ids = weights.model().vocab_size;
  if (!tokenizer_.empty()) return OpenTokenizer(tokenizer_, ids);
  if (HasTokenizer(folder())) return OpenTokenizer(folder(), ids);
  if (weights.data().empty()) {
    throw UsageError(fmt::format("{}: no tokenizer found; give --tokenizer", folder()));
  }
  return OpenDatasetTokenizer(weights.data());
}

std::unique_ptr<Tokenizer> SourceFlags::OpenTokenizerOf(const WeightSource& weights) const {
  std::unique_ptr<Tokenizer> tokenizer = FindTokenizer(weights);
  if (tokenizer->vocab_size() > weights.model().vocab_size) {
    throw InputError(fmt::format("the tokenizer has {} ids; expected at most the model's {}",
                                 tokenizer->vocab_size(), weights.model().vocab_size));
  }
  return tokenizer;
}

std::vector<int32_t> SourceFlags::EndTokensOf(const WeightSource& weights) const {
  return ReadEndTokens(folder(), weights.model().vocab_size);
}

std::optional<ServingConfig> ServingFlags::ConfigOfFile() const {
  if (config_file_.empty() || TrainingRunOfFile()) return std::nullopt;
  const std::string other = flags_->FirstGiven(
      {"--layout", "--prefill", "--device", "--threads-per-rank", "--memory-per-rank", "--weights",
       "--cache", "--cache-tokens", "--block-size", "--sequences", "--tokens-per-step",
       "--max-length", "--lookup", "--draft-tokens", "--no-prefix-cache"});
  if (!other.empty()) {
    throw UsageError(fmt::format("{} contradicts --config, which already says it", other));
  }
  return LoadServingConfig(config_file_);
}

std::optional<RunConfig> ServingFlags::TrainingRunOfFile() const {
  if (config_file_.empty()) return std::nullopt;
  const nlohmann::json json = ReadJsonFile(config_file_);
  const auto has = [](const nlohmann::json& object, const char* key) {
    return object.is_object() && object.contains(key);
  };
  // A configuration that serves has no batch; a report of a search for serving recommends no run.
  const bool is_run =
      has(json, "global_batch") || (has(json, "recommended") && has(json["recommended"], "run"));
  return is_run ? std::optional(LoadRunConfig(config_file_)) : std::nullopt;
}

void ServingFlags::RequireSame(const ModelConfig& asked, const ModelConfig& weights) const {
  ModelConfig same = asked;
  same.name = weights.name;
  if (same == weights) return;
  throw InputError(fmt::format("{}: a configuration of {}; the weights are of another model, {}",
                               config_file_, asked.name, weights.name));
}

ServingConfig ServingFlags::Config(const WeightSource& weights) const {
  if (std::optional<ServingConfig> config = ConfigOfFile()) {
    RequireSame(config->model, weights.model());
    return *std::move(config);
  }
  ServingConfig config = config_;
  config.model = weights.model();
  config.device = device_;
  // How it was trained does not say how it is to be served, but for the model and the device.
  if (const std::optional<RunConfig> run = TrainingRunOfFile()) {
    RequireSame(run->model, weights.model());
    if (!flags_->Given("--device")) config.device = run->device;
  }
  config.layout = ParseLayout(layout_, /*world_size=*/0);
  RequireNotInLayout(layout_,
                     {"mbs", "schedule", "recompute", "shard", "overlap_grad_reduce", "precision",
                      "master", "moments", "grads"},
                     "training has it, serving does not");
  config.weights = weights_ == kStored ? weights.format() : WeightFormatOf(weights_);
  config.cache = CacheType(cache_);
  config.cache_blocks = CeilDiv(cache_tokens_, config.block_size);
  config.prefix_cache = !no_prefix_cache_;
  config.limits.sequence_length = max_length_;
  config.limits.tokens_per_step = std::max(config.limits.tokens_per_step, config.limits.sequences);
  return config;
}

bool ServingFlags::Follows(const WeightSource& weights, const WeightSource* draft,
                           std::optional<double> acceptance,
                           std::shared_ptr<GrammarCompiler> grammars) const {
  if (LaunchedRank() == 0) return false;
  CatchStopSignals(StopNotice::kNone);  // the launcher sends all what the first one answers to
  std::optional<Asked> asked;
  try {
    asked.emplace(*this, weights, draft);
    PrepareServing(asked->config);
  } catch (const Error&) {
    return true;  // the first one refuses it too, and says why before the launcher ends it
  }
  FollowEngine(asked->config, weights, asked->draft, acceptance, std::move(grammars));
  return true;
}

std::unique_ptr<WeightSource> ServingFlags::OpenDraft() const {
  if (draft_.empty()) return nullptr;
  const bool hugging_face = std::filesystem::exists(draft_ + "/config.json");
  return hugging_face ? OpenHuggingFaceWeights(draft_, LoadModelConfig(draft_))
                      : OpenCheckpointWeights(draft_);
}

ServingConfig ServingFlags::ConfigWith(const WeightSource& weights,
                                       const WeightSource* draft) const {
  ServingConfig config = Config(weights);
  if (config_file_.empty() || TrainingRunOfFile()) {
    if (draft != nullptr) config.draft = {draft->model(), draft->format(), draft_tokens_};
    if (draft == nullptr && flags_->Given("--draft-tokens")) {
      throw UsageError("--draft-tokens needs --draft: which model proposes them?");
    }
    if (draft != nullptr && config.lookup_tokens > 0) {
      throw UsageError("--lookup contradicts --draft: either proposes what follows");
    }
  } else if (draft == nullptr && config.draft.tokens > 0) {
    throw UsageError(fmt::format("{}: {} proposes tokens; expected --draft, with its weights",
                                 config_file_, config.draft.model.name));
  } else if (draft != nullptr) {
    if (config.draft.tokens == 0) {
      throw UsageError("--draft contradicts --config, by which no model proposes tokens");
    }
    RequireSame(config.draft.model, draft->model());
  }
  if (config.layout.world_size() > kMaxLocalRanks) {
    throw InfeasibleError(fmt::format("the layout needs {} ranks; one machine serves on at most {}",
                                      config.layout.world_size(), kMaxLocalRanks));
  }
  return config;
}

ServingFlags::Asked::Asked(const ServingFlags& flags, const WeightSource& weights,
                           const WeightSource* given)
    : opened(given == nullptr ? flags.OpenDraft() : nullptr),
      draft(opened != nullptr ? opened.get() : given),
      config(flags.ConfigWith(weights, draft)) {}

std::unique_ptr<Engine> ServingFlags::OpenEngine(const WeightSource& weights,
                                                 const WeightSource* draft,
                                                 std::optional<double> acceptance,
                                                 std::shared_ptr<GrammarCompiler> grammars) const {
  const Asked asked(*this, weights, draft);
  return MakeEngine(asked.config, weights, asked.draft, acceptance, std::move(grammars));
}

void LogAcceptance(const EngineMetrics& metrics) {
  if (metrics.checked_tokens == 0) return;
  LogInfo("{} proposed, {} accepted: acceptance {:.3f}", Counted(metrics.proposed_tokens, "token"),
          metrics.accepted_tokens, AcceptanceOf(metrics.checked_tokens, metrics.accepted_tokens));
}

void SamplingFlags::Declare(FlagSet& flags) {
  flags.Group("Sampling");
  flags.Number("--temperature", options.temperature, 0, 100,
               {"divisor of the logits; 0: take the likeliest token"});
  flags.Integer("--top-k", options.top_k, 0, kMax32, "draw among the K likeliest tokens; 0: all");
  flags.Number("--top-p", options.top_p, 0, 1,
               "draw among the likeliest tokens that together have this probability");
  flags.Number("--min-p", options.min_p, 0, 1,
               "draw among tokens with at least this share of the top token's probability");
  flags.Number("--repetition-penalty", options.repetition_penalty, 0.01, 100,
               "make tokens that occurred less likely; 1: no penalty");
  flags.Texts("--stop TEXT", stops,
              {"end an answer before this text", "May be given several times."});
}

void SamplingFlags::RequireSensible() const {
  if (std::ranges::any_of(stops, &std::string::empty)) {
    throw UsageError("--stop: the text is empty; expected what ends an answer");
  }
}

}  // namespace trimtab
