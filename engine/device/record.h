// What a device reports to whoever listens: every op with its cost, every message.
//
// The meta device's listener is the dry run; the cpu's, when there is one, times each op.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "engine/base/dtype.h"

namespace trimtab {

enum class OpKind : int {
  kGemm,               // dims m, n, k
  kAttentionForward,   // dims B * H, T, D, kv heads
  kAttentionBackward,  // dims B * H, T, D, kv heads
  kLayerNormForward,   // dims rows, columns (also the ops below, unless numel is noted)
  kLayerNormBackward,
  kRmsNormForward,
  kRmsNormBackward,
  kActivationForward,
  kActivationBackward,
  kGatedActivationForward,
  kGatedActivationBackward,
  kHeadNormForward,   // tokens, columns normed
  kHeadNormBackward,  // likewise
  kJoinHeads,         // tokens, columns written
  kJoinHeadsBackward,
  kAttentionSink,  // tokens, columns
  kAttentionSinkBackward,
  kRope,
  kAddBias,
  kBiasBackward,
  kEmbeddingForward,
  kEmbeddingBackward,
  kPositionForward,
  kPositionBackward,
  kCrossEntropy,
  kCrossEntropyParts,
  kCrossEntropyGrad,  // rows, columns, shards
  kAdd,               // numel
  kCopy,              // numel
  kFill,              // numel
  kSum,               // numel
  kSumSquares,        // numel
  kSoftCap,           // numel
  kClamp,             // numel
  kClampBackward,
  kClip,       // numel: scalars
  kAdamW,      // numel
  kMomentum,   // numel
  kNormalize,  // numel
  kQuintic,    // numel
  kAmax,       // numel
  kQuantize,   // rows, columns
  kFp8Scales,  // numel: scales set
  kLayerNormForwardFp8,
  kRmsNormForwardFp8,
  kGeluForwardFp8,
  kGeluBackwardFp8,
  kSwiGluForwardFp8,
  kSwiGluBackwardFp8,
  kRopeBackwardFp8,  // tokens, columns
  kGroupedGemm,      // dims m, n, k of the mean group; groups
  kGroupedAddBias,
  kGroupedBiasBackward,
  kRouterChoose,  // rows, experts, k (also those below)
  kSinkhornChoose,
  kRouterWeights,
  kRouterWeightsBackward,
  kRouterLossBackward,
  kCountChoices,
  kDropTokens,
  kSortByExpert,
  kOrderArrivals,      // rows, ranks, experts
  kUpdateExpertBias,   // numel: experts
  kPermute,            // rows, columns; tokens, k
  kUnpermute,          // the same
  kUnpermuteBackward,  // the same
  kGateRows,
  kGateRowsBackward,
  kStoreKv,            // rows, columns: of keys and values
  kPagedAttention,     // rows, query heads, D, kv heads
  kPackedGemm,         // dims m, n, k
  kGroupedPackedGemm,  // dims m, n, k of the mean group; groups
};
inline constexpr int kOpKindCount = static_cast<int>(OpKind::kGroupedPackedGemm) + 1;

/// "gemm", "attention_forward", ...: the names used in hardware profiles and reports.
std::string_view Name(OpKind kind);

/// What an op does beside its own work, while the values are at hand: which op that would be, the
/// least traffic of it on its own, and how much of that is left, counted in the bytes of the op.
struct FusedOp {
  OpKind kind{};
  int64_t bytes = 0;  // 0 = there is none
  int64_t beside = 0;

  bool operator==(const FusedOp&) const = default;
};

/// One op as it was asked for. `flops` counts matrix products and attention only (2 per
/// multiply-add); `bytes` is the least traffic to memory: every input read once, every output
/// written once.
struct OpRecord {
  OpKind kind{};
  DType dtype = DType::kF32;      // of the operands; mixed ops: of what they read most
  std::array<int64_t, 4> dims{};  // meaning per kind, above; unused = 0
  int64_t flops = 0;
  int64_t bytes = 0;
  FusedOp fused{};

  bool operator==(const OpRecord&) const = default;
};

enum class CollectiveKind : int {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kSend,
  kRecv,
  kBarrier,
};
inline constexpr int kCollectiveKindCount = static_cast<int>(CollectiveKind::kBarrier) + 1;

/// "all_reduce", ...
std::string_view Name(CollectiveKind kind);

/// The group a message belongs to. Which ranks are in it: engine/comm/process_groups.h.
enum class GroupKind : int {
  kWorld,
  kTensor,
  kKeyValue,
  kContext,
  kData,
  kPipeline,
  kEmbedding,
  kShard,
  kReplica,
  kExpert,
  kExpertTensor,
  kExpertModel,
  kExpertData,
  kExpertShard,
  kExpertReplica,
};
inline constexpr int kGroupKindCount = static_cast<int>(GroupKind::kExpertReplica) + 1;

/// "world", "tp", "kv", "cp", "dp", "pp", "embedding", "shard", "replica", "ep", "etp", "etp_ep",
/// "edp", "expert_shard", "expert_replica".
std::string_view Name(GroupKind group);

/// One message of this rank. `bytes` is the size of the full (unsharded) buffer: the buffer of an
/// all-reduce, the output of an all-gather, the input of a reduce-scatter, the tensor sent, the
/// larger of what an all-to-all takes and gives.
struct CommRecord {
  CollectiveKind kind{};
  GroupKind group{};
  int64_t ranks = 1;
  int64_t bytes = 0;
  int peer = -1;   // rank in the group: other end of a send or receive, root of a broadcast
  int64_t id = 0;  // of an asynchronous message, unique on its device; 0: the call itself waits

  bool asynchronous() const { return id != 0; }
  bool operator==(const CommRecord&) const = default;
};

/// What a training step is made of.
enum class PieceKind : int { kEmbedding, kLayer, kHead, kUpdate };
/// Which way through it. An update has one way; recomputation lies within a backward pass.
enum class PassKind : int { kForward, kRecompute, kBackward };

/// "embedding", "layer", "head", "update"; "forward", "recompute", "backward".
std::string_view Name(PieceKind piece);
std::string_view Name(PassKind pass);

/// A piece of the step, as the rank comes to it.
struct PieceRecord {
  PieceKind kind{};
  PassKind pass{};
  int64_t layer = 0;  // of the model; with kLayer

  bool operator==(const PieceRecord&) const = default;
};

/// A listener. `Begin*` is called before the work, `End` after it, on the rank's own thread.
class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual void BeginOp(const OpRecord& op) = 0;
  /// A message is submitted; one that is not asynchronous is also waited for.
  virtual void BeginComm(const CommRecord& message) = 0;
  /// What follows waits for an asynchronous message, reported like this when it was submitted.
  virtual void BeginWait(const CommRecord& message) = 0;
  virtual void End() = 0;
  /// What follows, up to the next call, is action number `index` of the rank's pipeline program,
  /// or what comes after the last one.
  virtual void EnterAction(int64_t /*index*/) {}
  /// What follows, up to the next call, belongs to `piece`.
  virtual void EnterPiece(const PieceRecord& /*piece*/) {}
};

}  // namespace trimtab
