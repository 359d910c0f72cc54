// Where the heads of an attention call lie in memory, as kernels want it. The attention of whole
// sequences is that of one block that holds them.
#pragma once

#include <cmath>

#include "engine/ops/cuda/attention/attention_kernels.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {

/// A block of queries and keys, and where the heads lie: offsets are in elements, from the first of
/// qkv, kv, out (or dout, dquery) or an array [B, H, T] to the block's first row.
struct BlockGeometry {
  int size;   // queries of the block, and keys
  int ahead;  // positions of query 0 after key 0
  int heads;
  int kv_heads;
  int group;         // query heads per key/value head
  int head_size;     // of queries and keys
  int value_size;    // of values and out
  int64_t sequence;  // tokens of a sequence
  int64_t query;     // first of the block
  int64_t key;
  int64_t qkv_stride;  // between tokens
  int64_t kv_stride;
  int64_t out_stride;
  float scale;  // of the scores: as in ScoreOptions, like the next four
  float soft_cap;
  int window;
  int alibi_heads;
  int alibi_first;
  const int32_t* positions;  // [B, T] of the queries; nullptr without documents

  /// Whole sequences, whose keys and values are in qkv: kv begins at the first key.
  explicit BlockGeometry(const AttentionShape& s)
      : BlockGeometry(s, s.rows, {.size = s.rows.sequence}) {
    kv_stride = s.qkv_size();
  }
  BlockGeometry(const AttentionShape& s, const RowLayout& keys, const AttentionBlock& block)
      : size(static_cast<int>(block.size)),
        ahead(static_cast<int>(AheadOf(s.rows, keys, block))),
        heads(static_cast<int>(s.heads)),
        kv_heads(static_cast<int>(s.kv_heads)),
        group(static_cast<int>(s.heads / s.kv_heads)),
        head_size(static_cast<int>(s.head_size)),
        value_size(static_cast<int>(s.value_size())),
        sequence(s.rows.sequence),
        query(block.query),
        key(block.key),
        qkv_stride(s.qkv_size()),
        kv_stride(s.kv_size()),
        out_stride(s.out_size()),
        scale(static_cast<float>(s.score_scale())),
        soft_cap(static_cast<float>(s.scores.soft_cap)),
        window(static_cast<int>(s.scores.window)),
        alibi_heads(static_cast<int>(s.scores.alibi_heads)),
        alibi_first(static_cast<int>(s.scores.alibi_first)),
        positions(s.rows.view().list) {}

  TRIMTAB_HOST_DEVICE int64_t Query(int batch, int head) const {
    return (batch * sequence + query) * qkv_stride + int64_t{head} * head_size;
  }
  TRIMTAB_HOST_DEVICE int64_t Key(int batch, int kv_head) const {
    return (batch * sequence + key) * kv_stride + int64_t{kv_head} * head_size;
  }
  TRIMTAB_HOST_DEVICE int64_t Value(int batch, int kv_head) const {
    return Key(batch, kv_heads) + int64_t{kv_head} * value_size;
  }
  TRIMTAB_HOST_DEVICE int64_t Out(int batch, int head) const {
    return (batch * sequence + query) * out_stride + int64_t{head} * value_size;
  }
  TRIMTAB_HOST_DEVICE int64_t Row(int batch, int head) const {
    return (int64_t{batch} * heads + head) * sequence + query;
  }
  /// Positions of the block's query `i` after its key `j`.
  TRIMTAB_HOST_DEVICE int Distance(int i, int j) const { return i + ahead - j; }
  /// Returns the positions of the block's queries of a sequence, for the functions below.
  TRIMTAB_HOST_DEVICE const int32_t* Documents(int batch) const {
    return positions == nullptr ? nullptr : positions + batch * sequence + query;
  }
  /// Whether the block's query `i` sees its key `j`.
  TRIMTAB_HOST_DEVICE bool Sees(const int32_t* documents, int i, int j) const {
    const int distance = Distance(i, j);
    return j < size && distance >= 0 && (window == 0 || distance < window) &&
           (documents == nullptr || (i < size && distance <= documents[i]));
  }
  /// The first key that any query from `first` on sees, or one up to `step` - 1 before it: a
  /// multiple of that. Documents begin in the order of their queries.
  TRIMTAB_HOST_DEVICE int KeysBegin(const int32_t* documents, int first, int step) const {
    int begin = window == 0 || first + ahead < window ? 0 : first + ahead + 1 - window;
    if (documents != nullptr) {
      const int document = first + ahead - documents[first];
      if (document > begin) begin = document;
    }
    return begin / step * step;
  }
  /// The first query that sees key `first`, and one past the last that sees any of `rows` keys from
  /// there on.
  TRIMTAB_HOST_DEVICE int QueriesBegin(int first) const {
    return first > ahead ? first - ahead : 0;
  }
  TRIMTAB_HOST_DEVICE int QueriesEnd(const int32_t* documents, int first, int rows) const {
    const int last = first + rows - 1 - ahead;
    int end = window == 0 || last >= size - window ? size : last + window;
    if (documents == nullptr) return end;
    // The first query whose document begins behind these keys.
    int begin = QueriesBegin(first);
    while (begin < end) {
      const int middle = (begin + end) / 2;
      if (middle - documents[middle] > last) {
        end = middle;
      } else {
        begin = middle + 1;
      }
    }
    return end;
  }
  /// What ALiBi takes per token between a query of `head` and its key.
  TRIMTAB_HOST_DEVICE float Slope(int head) const {
    return AlibiSlope(alibi_first + head, alibi_heads);
  }
  /// A product of query and key, scaled and capped.
  TRIMTAB_HOST_DEVICE float Capped(float dot) const {
    const float score = dot * scale;
    return soft_cap > 0.0f ? soft_cap * Tanh(score / soft_cap) : score;
  }
  /// The derivative of the cap where it gave `capped`.
  TRIMTAB_HOST_DEVICE float CapSlope(float capped) const {
    const float t = soft_cap > 0.0f ? capped / soft_cap : 0.0f;
    return 1.0f - t * t;
  }
  /// One past the last key that any of `rows` queries from `first` on sees.
  TRIMTAB_HOST_DEVICE int KeysEnd(int first, int rows) const {
    return first + ahead + rows < size ? first + ahead + rows : size;
  }
  /// One past the last key that query `first` sees, without a window.
  TRIMTAB_HOST_DEVICE int SeenBy(int first) const { return KeysEnd(first, 1); }
};

/// One block of threads per `rows` queries or keys of the block, head and sequence.
inline dim3 AttentionGrid(const AttentionShape& s, int64_t size, int64_t rows, int64_t heads) {
  return dim3(static_cast<unsigned>((size + rows - 1) / rows), static_cast<unsigned>(heads),
              static_cast<unsigned>(s.rows.batch));
}

/// What the kernels of the backward pass read and write. Gradients of queries are overwritten in
/// dqkv, or added to sums of their own in fp32.
template <typename T, typename Query>
struct AttentionBackwardPointers {
  const T* qkv;
  const T* kv;
  const T* dout;
  const float* log_sum_exp;
  const float* row_sums;
  Query* dquery;  // of head 0 of the first token
  int64_t dquery_stride;
  T* dkv;  // as kv

  TRIMTAB_HOST_DEVICE Query* DQuery(const BlockGeometry& s, int batch, int head) const {
    return dquery + (batch * s.sequence + s.query) * dquery_stride + int64_t{head} * s.head_size;
  }
};

template <typename T>
AttentionBackwardPointers<T, T> PointersOf(const AttentionBackwardCall& call) {
  const int64_t query_columns = call.shape.query_size();
  const T* qkv = static_cast<const T*>(call.qkv);
  T* dqkv = static_cast<T*>(call.dqkv);
  return {.qkv = qkv,
          .kv = qkv + query_columns,
          .dout = static_cast<const T*>(call.dout),
          .log_sum_exp = call.log_sum_exp,
          .row_sums = call.row_sums(),
          .dquery = dqkv,
          .dquery_stride = call.shape.qkv_size(),
          .dkv = dqkv + query_columns};
}

template <typename T>
AttentionBackwardPointers<T, float> PointersOf(const AttentionBlockBackwardCall& call) {
  return {.qkv = static_cast<const T*>(call.qkv),
          .kv = static_cast<const T*>(call.kv),
          .dout = static_cast<const T*>(call.dout),
          .log_sum_exp = call.log_sum_exp,
          .row_sums = call.row_sums,
          .dquery = call.dquery,
          .dquery_stride = call.shape.query_size(),
          .dkv = static_cast<T*>(call.dkv)};
}

}  // namespace trimtab
