// The flags that describe an engine that serves, shared by the commands that have one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/run/run_config.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/grammar/token_grammar.h"
#include "engine/infer/api/engine.h"
#include "engine/infer/serving_config.h"
#include "engine/runtime/weights/weight_source.h"
#include "tools/cli/flags.h"

namespace trimtab {

/// Which model, and how its tokens become text.
class SourceFlags {
 public:
  void Declare(FlagSet& flags);

  /// What the flags ask for. Throws UsageError, InputError, StorageError.
  std::unique_ptr<WeightSource> OpenWeights() const;
  std::unique_ptr<Tokenizer> OpenTokenizerOf(const WeightSource& weights) const;
  /// Ids that end an answer beside the tokenizer's own (engine/data/tokenizer/end_tokens.h).
  std::vector<int32_t> EndTokensOf(const WeightSource& weights) const;
  /// Of the weights.
  const std::string& folder() const { return load_.empty() ? load_hf_ : load_; }

 private:
  std::unique_ptr<Tokenizer> FindTokenizer(const WeightSource& weights) const;

  std::string load_;
  std::string load_hf_;
  std::string tokenizer_;
};

class ServingFlags {
 public:
  void Declare(FlagSet& flags);

  /// As SourceFlags.
  std::unique_ptr<WeightSource> OpenWeights() const { return source_.OpenWeights(); }
  std::unique_ptr<Tokenizer> OpenTokenizerOf(const WeightSource& weights) const {
    return source_.OpenTokenizerOf(weights);
  }
  std::vector<int32_t> EndTokensOf(const WeightSource& weights) const {
    return source_.EndTokensOf(weights);
  }
  const std::string& config_file() const { return config_file_; }
  /// The configuration of --config; empty without, or where that says how to train.
  std::optional<ServingConfig> ConfigOfFile() const;
  ServingConfig Config(const WeightSource& weights) const;
  /// In a process that a launcher started beside the first: does its part of the engine that the
  /// first one opens with the same arguments, until that ends. Whether this is such a process; then
  /// there is nothing more to do.
  bool Follows(const WeightSource& weights, const WeightSource* draft = nullptr,
               std::optional<double> acceptance = std::nullopt,
               std::shared_ptr<GrammarCompiler> grammars = nullptr) const;
  /// The engine, with its draft model where one is asked for. Not in such a process. With
  /// `acceptance` and `grammars` as MakeEngine; `draft` instead of what --draft says.
  std::unique_ptr<Engine> OpenEngine(const WeightSource& weights,
                                     const WeightSource* draft = nullptr,
                                     std::optional<double> acceptance = std::nullopt,
                                     std::shared_ptr<GrammarCompiler> grammars = nullptr) const;

 private:
  /// Of a --config that says how to train: RUN.json, or the report of a search for training.
  std::optional<RunConfig> TrainingRunOfFile() const;

  /// What is to be served, with its draft model if it has one: `draft`, or that of the flags.
  struct Asked {
    Asked(const ServingFlags& flags, const WeightSource& weights, const WeightSource* draft);

    std::unique_ptr<WeightSource> opened;
    const WeightSource* draft;
    ServingConfig config;
  };

  /// What --draft says; null without.
  std::unique_ptr<WeightSource> OpenDraft() const;
  /// Config with the draft model, which --draft or --config must ask for.
  ServingConfig ConfigWith(const WeightSource& weights, const WeightSource* draft) const;
  /// Throws InputError where the weights are not of the model that --config says.
  void RequireSame(const ModelConfig& asked, const ModelConfig& weights) const;

  const FlagSet* flags_ = nullptr;
  std::string config_file_;
  SourceFlags source_;
  std::string draft_;
  std::string layout_;
  DeviceKind device_ = DeviceKind::kCpu;
  std::string weights_ = "stored";
  std::string cache_ = "fp32";
  int64_t cache_tokens_ = 0;
  int64_t max_length_ = 0;
  int64_t draft_tokens_ = 4;
  bool no_prefix_cache_ = false;
  ServingConfig config_;
};

/// Says how much of what was proposed has stood; nothing where nothing was.
void LogAcceptance(const EngineMetrics& metrics);

/// The flags that say how tokens are chosen.
struct SamplingFlags {
  SamplingOptions options{};
  std::vector<std::string> stops;

  void Declare(FlagSet& flags);
  /// Throws UsageError for what flags alone cannot refuse.
  void RequireSensible() const;
};

}  // namespace trimtab
