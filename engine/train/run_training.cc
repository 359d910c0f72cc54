#include "engine/train/run_training.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <map>
#include <ranges>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/comm/mpi/exchange_rounds.h"
#include "engine/comm/mpi_launch.h"
#include "engine/config/model/model_differences.h"
#include "engine/config/rules/rules.h"
#include "engine/data/dataset/open_token_source.h"
#include "engine/data/dataset/sample_prefetcher.h"
#include "engine/data/tokenizer/end_tokens.h"
#include "engine/data/tokenizer/open_tokenizer.h"
#include "engine/runtime/ranks.h"
#include "engine/runtime/whole_model.h"
#include "engine/train/checkpointing.h"
#include "engine/train/continuation.h"
#include "engine/train/trainer.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// What the ranks of this process share; written by the one that speaks for it.
struct Shared {
  std::string tokens;  // IdentityOfTokens
  std::map<std::string, std::string> tokenizer_files;
  TrainingSummary summary;
  std::unique_ptr<CheckpointWriter> writer;
};

class RankLoop {
 public:
  RankLoop(const RunConfig& run, const TrainingOptions& options, const TokenSource& source,
           Rank& rank, Shared& shared)
      : run_(run),
        options_(options),
        samples_(source, run.sequence_length + 1, kMicroBatchesAhead * run.layout.micro_batch),
        rank_(rank),
        shared_(shared),
        trainer_(run, rank.parallel(), rank.device()) {}

  /// From the checkpoint `from`, or from the weights, or, with neither, from random weights.
  void Run(const CheckpointReader* from, const WeightSource* weights) {
    int64_t step = 0;
    int64_t saved = 0;
    if (weights != nullptr) ReadWeights(trainer_, *weights);
    if (from != nullptr) {
      ReadState(trainer_, *from);
      step = from->header().step;
      if (GoesOnInPlace()) saved = step;
    }
    StopSignal stop = StopSignal::kNone;
    if (step < run_.steps) Expect(step);
    StartTogether();
    while (step < run_.steps && stop == StopSignal::kNone) {
      OneStep(step++);
      stop = EndTogether();
      const bool due = options_.save_every > 0 && step % options_.save_every == 0;
      if (due && stop != StopSignal::kCancel) {
        Save(step);
        saved = step;
        StartTogether();
      }
    }
    if (stop != StopSignal::kCancel && saved != step) Save(step);
    const int64_t peak = rank_.device().memory().peak_total();
    const std::vector<int64_t> peaks = rank_.Gather(std::span(&peak, 1));
    if (!rank_.speaks()) return;
    shared_.summary.steps_done = step;
    shared_.summary.stopped_by = stop;
    shared_.summary.peak_mem_bytes = *std::max_element(peaks.begin(), peaks.end());
  }

 private:
  /// Whether what was loaded, by every rank, is at the target or was beside it and is there now.
  bool GoesOnInPlace() {
    if (options_.checkpoint.empty()) return false;
    rank_.Barrier();
    const bool in_place =
        rank_.index() == 0 && ContinuesCheckpoint(options_.load, options_.checkpoint);
    if (in_place) PutInPlace(options_.load, options_.checkpoint);
    return rank_.FromFirst(in_place ? 1 : 0) == 1;
  }

  /// Begins the time of a step after other work, once all ranks have done theirs.
  void StartTogether() {
    rank_.Barrier();
    begin_ = Clock::now();
  }

  void Expect(int64_t step) {
    const Trainer::SampleRange range = trainer_.SamplesOf(step);
    samples_.Expect(range.first, range.count);
  }

  void OneStep(int64_t index) {
    if (index + 1 < run_.steps) Expect(index + 1);
    const StepResult result = trainer_.Step(samples_, index, all_allow_capture_);
    rank_.device().Synchronize();
    if (rank_.speaks()) shared_.summary.last_loss = result.loss;
    if (rank_.index() != 0 || !options_.on_step) return;
    const double seconds = SecondsSince(begin_);
    const double tokens = static_cast<double>(run_.global_batch * run_.sequence_length);
    options_.on_step({.step = index + 1,
                      .loss = result.loss,
                      .grad_norm = result.grad_norm,
                      .learning_rate = result.learning_rate,
                      .loss_scale = result.loss_scale,
                      .skipped = result.skipped,
                      .routing = result.routing,
                      .step_time_s = seconds,
                      .tokens_per_s = tokens / seconds});
  }

  /// The one exchange between all ranks of a step: it tells whether all allow the next step to be
  /// captured, and returns rank 0's answer to whether to stop. The time of the next step begins as
  /// this rank comes here, so waiting for slower ranks is part of some step.
  StopSignal EndTogether() {
    const bool asks = rank_.index() == 0 && options_.stop_requested;
    const StopSignal mine = asks ? options_.stop_requested() : StopSignal::kNone;
    begin_ = Clock::now();
    std::array<int64_t, 2> told = {static_cast<int64_t>(mine), trainer_.AllowsCapture() ? 0 : 1};
    rank_.Max(told);
    all_allow_capture_ = told[1] == 0;
    return static_cast<StopSignal>(told[0]);
  }

  void Save(int64_t step) {
    if (options_.checkpoint.empty()) return;
    const Clock::time_point start = Clock::now();
    CheckpointHeader header = HeaderOf(trainer_, step);
    header.tokens = shared_.tokens;
    header.tokenizer_files = shared_.tokenizer_files;
    if (rank_.index() == 0) MakeWriter(header, FileRole::kMake);
    rank_.Barrier();
    // Threads share the writer of rank 0; a process has one of its own.
    if (rank_.speaks() && rank_.index() != 0) MakeWriter(header, FileRole::kJoin);
    WriteState(trainer_, *shared_.writer);
    if (rank_.speaks() && rank_.index() != 0) shared_.writer->Finish();
    CollectReceipts();
    if (rank_.index() == 0) shared_.writer->Finish();
    if (rank_.speaks()) shared_.writer.reset();
    if (rank_.index() != 0) return;
    if (options_.on_save) options_.on_save(step, SecondsSince(start));
  }

  /// Hands rank 0's writer what the others have written, along a binomial tree of processes. Every
  /// rank has written its part when rank 0 returns.
  void CollectReceipts() {
    if (rank_.in_process()) return rank_.Barrier();  // one writer
    Communicator& ranks = *rank_.parallel().host;
    const TreePlace tree = PlaceInTree(rank_.index(), ranks.size(), /*root=*/0);
    for (const int child : std::views::reverse(tree.children)) {  // the smallest subtree first
      uint64_t size = 0;
      RecvHostBytes(ranks, std::as_writable_bytes(std::span(&size, 1)), child);
      std::vector<uint64_t> receipt(size);
      RecvHostBytes(ranks, std::as_writable_bytes(std::span(receipt)), child);
      shared_.writer->AddReceipt(receipt);
    }
    if (tree.parent < 0) return;
    const std::vector<uint64_t> receipt = shared_.writer->Receipt();
    const uint64_t size = receipt.size();
    SendHostBytes(ranks, std::as_bytes(std::span(&size, 1)), tree.parent);
    SendHostBytes(ranks, std::as_bytes(std::span(receipt)), tree.parent);
  }

  void MakeWriter(const CheckpointHeader& header, FileRole role) {
    const WholeModelDeclaration model = DeclareWholeModel(trainer_);
    shared_.writer = std::make_unique<CheckpointWriter>(
        options_.checkpoint, header, StoredParameters(run_, model.parameters), role);
  }

  const RunConfig& run_;
  const TrainingOptions& options_;
  SamplePrefetcher samples_;
  Rank& rank_;
  Shared& shared_;
  Trainer trainer_;
  Clock::time_point begin_{};       // of the step under way
  bool all_allow_capture_ = false;  // no first step is captured: kernels are chosen in it
};

/// A checkpoint this run can go on from.
std::unique_ptr<CheckpointReader> OpenCheckpoint(const RunConfig& run,
                                                 const TrainingOptions& options,
                                                 const std::string& tokens) {
  if (options.load.empty()) return nullptr;
  auto reader = std::make_unique<CheckpointReader>(options.load);
  const CheckpointHeader& header = reader->header();
  for (const ModelDifference& each : DifferencesOf(header.run.model, run.model)) {
    throw InputError(fmt::format("{}: holds a model with {} {}; expected {}, as in '{}'",
                                 options.load, each.name, each.found, each.expected,
                                 run.model.name));
  }
  const std::vector<ResultChange> changes =
      RequireContinuation(header, options.load, run, tokens, options.overrides);
  if (LaunchedRank() == 0) Tell(changes, options.load);
  return reader;
}

/// Whether `files` are of the very vocabulary of `others`.
bool SameVocabulary(const std::vector<TokenizerFile>& files,
                    const std::vector<TokenizerFile>& others) {
  return std::ranges::any_of(files, [&](const TokenizerFile& file) {
    return (file.name.starts_with("tokenizer.") || file.name.starts_with("vocab.")) &&
           std::ranges::any_of(others, [&](const TokenizerFile& other) {
             return other.name == file.name && other.content == file.content;
           });
  });
}

/// The tokenizer of the data, or else of what the run begins with; and unless the data's vocabulary
/// is another, what the latter says of its tokens.
std::map<std::string, std::string> TokenizerFiles(const RunConfig& run,
                                                  const TrainingOptions& options) {
  const std::string& begin = options.load_hf.empty() ? options.load : options.load_hf;
  std::vector<TokenizerFile> files;
  if (!run.data.empty()) files = ReadDatasetTokenizerFiles(run.data);
  std::vector<TokenizerFile> of_begin;
  if (!begin.empty()) of_begin = ReadTokenizerFiles(begin);
  std::map<std::string, std::string> by_name;
  if (!begin.empty() && (files.empty() || SameVocabulary(files, of_begin))) {
    files = of_begin;  // with all that is said beside it
    if (!files.empty()) ReadEndTokens(begin, run.model.vocab_size);  // refuses ids that are none
    by_name = ReadGenerationFiles(begin);
  }
  for (TokenizerFile& file : files) by_name.emplace(file.name, std::move(file.content));
  return by_name;
}

}  // namespace

TrainingSummary RunTraining(const RunConfig& run, const TrainingOptions& options) {
  RequireLegal(run);
  std::unique_ptr<LockFile> lock;
  if (!options.checkpoint.empty()) {
    CheckCheckpointTarget(options.checkpoint);
    // For all ranks.
    if (LaunchedRank() == 0) lock = LockCheckpoint(options.checkpoint);
  }
  const std::unique_ptr<TokenSource> source = OpenTokenSource(run);
  Shared shared;
  shared.tokens = IdentityOfTokens(run);
  const std::unique_ptr<CheckpointReader> from = OpenCheckpoint(run, options, shared.tokens);
  std::unique_ptr<WeightSource> weights;
  if (!options.load_hf.empty()) weights = OpenHuggingFaceWeights(options.load_hf, run.model);

  if (!options.checkpoint.empty()) shared.tokenizer_files = TokenizerFiles(run, options);
  shared.summary.first_step = from != nullptr ? from->header().step : 0;
  RunRanks(run, [&](Rank& rank) {
    RankLoop(run, options, *source, rank, shared).Run(from.get(), weights.get());
  });
  return shared.summary;
}

}  // namespace trimtab
