// Checkpoints: the state of a training run in a form that no layout shows through.
//
// A checkpoint is a folder of checkpoint.json, weights.safetensors, optimizer.safetensors, the
// checksums of the two, and the files of the tokenizer, where it is known. The tensors are whole:
// not sharded, without vocabulary padding, fp32. So any layout can write one and any other can read
// it. README.md describes the files to the byte.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/io/lock_file.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/config/run/run_config.h"
#include "engine/parameters/fp8_snapshot.h"
#include "engine/parameters/parameter.h"

namespace trimtab {

/// Dynamic loss scaling (fp16). scale 0: there is none.
struct LossScaleState {
  double scale = 0;
  int64_t good_steps = 0;  // since the last change
  int64_t skipped = 0;     // steps without an update
};

/// Where a run stands: `step` optimizer steps done, `samples` samples of `tokens` consumed.
struct CheckpointHeader {
  RunConfig run;
  int64_t step = 0;
  int64_t samples = 0;
  std::string tokens{};  // names the content of the data: IdentityOfTokens; empty: unknown
  LossScaleState loss_scale{};
  Fp8Snapshot fp8{};
  std::map<std::string, std::vector<float>> buffers{};  // of the whole model, by name
  // Contents of the files, among kTokenizerFiles, that say how tokens become text. Written beside
  // the state, and found there by who opens the folder's tokenizer: a reader leaves this empty.
  std::map<std::string, std::string> tokenizer_files{};
};

/// Names of files that a tokenizer is made of, of the one that says which ids end an answer, and of
/// the config.json that the model came with.
inline constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                                  "tokenizer.model",
                                                  "vocab.json",
                                                  "merges.txt",
                                                  "added_tokens.json",
                                                  "tokenizer_config.json",
                                                  "special_tokens_map.json",
                                                  "chat_template.json",
                                                  "chat_template.jinja",
                                                  "generation_config.json",
                                                  "source_config.json"};

/// The slot of the weights themselves; others have the names that update rules give them.
inline constexpr const char* kWeightSlot = "";

/// A parameter in a checkpoint: its weights, and so many slots of optimizer state by name.
struct StoredParameter {
  const ParameterSpec* spec = nullptr;
  std::vector<std::string> slots{};
};

/// Elements [begin, begin + values.size()) of the row-major local shard that `spec` describes.
/// Which elements of the full tensor they are follows from spec.partition; those outside every
/// segment (vocabulary padding) are neither written nor touched by reading.
struct TensorSlice {
  const ParameterSpec* spec = nullptr;
  int64_t begin = 0;
  std::span<float> values;
};

/// Whether a checkpoint may be put at `directory`: it is not there, empty, or a checkpoint, header
/// and all, and nothing else; and what a save puts beside it replaces nothing else either. Throws
/// StorageError otherwise. Ask before a long run, not after it.
void CheckCheckpointTarget(const std::string& directory);

/// Makes the folder that saving to `directory` would write first, and removes it again. Throws
/// StorageError where that is not possible. One process of a run asks.
void RequireCheckpointWritable(const std::string& directory);

/// Steps done by the checkpoint at `directory`; -1 where there is none.
int64_t StepOfCheckpoint(const std::string& directory);

/// Reads checkpoint.json alone. Throws InputError where there is nothing of a checkpoint,
/// StorageError when it is missing or damaged.
CheckpointHeader ReadCheckpointHeader(const std::string& directory);

/// The newest whole checkpoint that saving to `directory` has left: the folder itself, or what a
/// save that was cut short has beside it. Empty when there is none. Whole: all files are there in
/// their sizes, and checkpoint.json and the checksums are undamaged; content is checked as it is
/// read. Throws StorageError when nothing but damaged ones is left.
std::string NewestCheckpoint(const std::string& directory);

/// Whether `loaded` is the checkpoint at `directory`, or stands beside it and is the newest whole
/// one. One that was named although a newer one is there begins another run, and replaces nothing
/// yet.
bool ContinuesCheckpoint(const std::string& loaded, const std::string& directory);

/// Puts what NewestCheckpoint found, and is whole, in the place that the next save replaces. Throws
/// StorageError.
void PutInPlace(const std::string& loaded, const std::string& directory);

/// Keeps other runs from saving to `directory` for as long as it lives. Throws StorageError where
/// another one does.
std::unique_ptr<LockFile> LockCheckpoint(const std::string& directory);

/// Writes DIR.tmp beside DIR and exchanges the two in Finish. Until then, and when anything fails,
/// what was at DIR stays as it was. All failures are StorageErrors.
class CheckpointWriter {
 public:
  /// `parameters` are all of the model's; only names, full shapes and slots are taken from them. A
  /// writer of another process that made the files may be joined: it must exist until this one
  /// has finished.
  CheckpointWriter(std::string directory, CheckpointHeader header,
                   std::span<const StoredParameter> parameters, FileRole role = FileRole::kMake);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Writes a part of a slot. Safe from several threads for slices that do not overlap.
  void Write(std::string_view slot, const TensorSlice& slice);

  /// Returns the number of elements that were written here or added, and their checksums, for
  /// another writer's AddReceipt.
  std::vector<uint64_t> Receipt() const;
  /// Adds what a writer of another process has written. From one thread, after all writes here.
  void AddReceipt(std::span<const uint64_t> receipt);
  /// Call once, from one thread. A writer that joined flushes what it has written; then its receipt
  /// may be taken. The one that made the files writes checkpoint.json, after every element of every
  /// tensor was written exactly once: by itself or by those whose receipts it has.
  void Finish();

 private:
  FileRole role_;
  std::string directory_;
  std::string temporary_;
  CheckpointHeader header_;
  std::vector<SafetensorsEntry> tensors_;  // weights
  std::vector<std::string> slots_;
  std::unique_ptr<SafetensorsWriter> weights_;
  std::unique_ptr<SafetensorsWriter> optimizer_;
  int64_t expected_elements_ = 0;
  std::atomic<int64_t> written_elements_ = 0;
};

/// Selects the files of a checkpoint that a reader opens.
enum class CheckpointParts { kWeights, kAll };

/// Reads checkpoints of this and older versions. Older ones have checksums of whole files, which
/// are read once at the start; otherwise only what is read is checked.
class CheckpointReader {
 public:
  /// Reads checkpoint.json, the headers and the checksums. Throws InputError where there is nothing
  /// of a checkpoint, StorageError when a file is missing, damaged, or not what checkpoint.json
  /// says. With kWeights the optimizer's files are not looked at.
  explicit CheckpointReader(const std::string& directory,
                            CheckpointParts parts = CheckpointParts::kAll);

  const CheckpointHeader& header() const { return header_; }

  /// Fills the slice from a slot. Safe from several threads. Throws InputError when the checkpoint
  /// has no such tensor, or one of another shape; StorageError where what is read is damaged.
  void Read(std::string_view slot, const TensorSlice& slice) const;

 private:
  CheckpointHeader header_;
  std::vector<std::string> slots_;
  std::unique_ptr<SafetensorsReader> weights_;
  std::unique_ptr<SafetensorsReader> optimizer_;
};

}  // namespace trimtab
