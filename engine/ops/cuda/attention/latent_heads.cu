// Joining the heads of latent attention, a block per token at a time: a table of the token's
// angles, then what turns, element by element, and what does not, pack by pack. Contract in
// engine/ops/attention/latent_heads.h.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 8;  // of the grid
constexpr int kUnroll = 4;                   // packs of a thread on their way at once
// Blocks that a multiprocessor runs at once. Left to itself the compiler makes room for more, and
// spills.
constexpr int kResidentBlocks = 3;

struct JoinShape {
  int64_t tokens;
  RowPositions positions;
  int heads;
  int head_size;   // D
  int fixed;       // D - R
  int value_size;  // Dv
  int pairs;       // R / 2
  bool interleaved;

  TRIMTAB_HOST_DEVICE int rotary() const { return 2 * pairs; }
  TRIMTAB_HOST_DEVICE int joined() const { return fixed + value_size; }
  TRIMTAB_HOST_DEVICE int64_t query_width() const { return int64_t{heads} * head_size; }
  TRIMTAB_HOST_DEVICE int64_t width() const {
    return int64_t{heads} * (2 * head_size + value_size);
  }
  TRIMTAB_HOST_DEVICE int64_t key_at(int head) const { return int64_t{heads + head} * head_size; }
  TRIMTAB_HOST_DEVICE int64_t value_at(int head) const {
    return 2 * query_width() + int64_t{head} * value_size;
  }
  /// The pair that turning dim `d` belongs to, and the other dim of it.
  TRIMTAB_HOST_DEVICE int pair(int d) const { return interleaved ? d / 2 : d % pairs; }
  TRIMTAB_HOST_DEVICE bool is_second(int d) const { return interleaved ? d % 2 == 1 : d >= pairs; }
  TRIMTAB_HOST_DEVICE int other(int d) const {
    const int reach = interleaved ? 1 : pairs;
    return is_second(d) ? d - reach : d + reach;
  }
};

// Sines, then cosines, of the pairs of one token.
__device__ void MakeTable(const JoinShape& s, const RotaryFrequencies& frequencies, int64_t token,
                          float* table) {
  const auto position = static_cast<double>(s.positions.of(token));
  for (int i = static_cast<int>(threadIdx.x); i < s.pairs; i += kThreads) {
    SinCos(position * frequencies.per_position[i], table[i], table[s.pairs + i]);
    table[i] *= frequencies.factor;
    table[s.pairs + i] *= frequencies.factor;
  }
}

// Dim `d` of what `x` becomes, `value` being the sum of what is in a dim over whatever x stands
// for.
template <typename Value>
__device__ float Turned(const JoinShape& s, const float* table, int d, Value value) {
  const float sine = table[s.pair(d)];
  const float cosine = table[s.pairs + s.pair(d)];
  const float own = value(d);
  const float other = value(s.other(d));
  return s.is_second(d) ? own * cosine + other * sine : own * cosine - other * sine;
}

// Copies `width` elements of each head, a multiple of N, by the threads of the block: from
// from(head) to to(head).
template <int N, typename T, typename From, typename To>
__device__ __forceinline__ void CopyHeads(int heads, int width, From from, To to) {
  const int packs = width / N;
  for (int first = static_cast<int>(threadIdx.x); first < heads * packs;
       first += kUnroll * kThreads) {
    Pack<T, N> loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int i = first + u * kThreads;
      if (i < heads * packs) loaded[u] = LoadPack<N>(from(i / packs) + i % packs * N);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int i = first + u * kThreads;
      if (i < heads * packs) StorePack(to(i / packs) + i % packs * N, loaded[u]);
    }
  }
}

template <int N, typename T>
__global__ void __launch_bounds__(kThreads, kResidentBlocks)
    JoinKernel(JoinShape s, const RotaryFrequencies frequencies, const T* __restrict__ query,
               const T* __restrict__ key_value, const T* __restrict__ key_rotary,
               T* __restrict__ qkv) {
  float* table = SharedMemory<float>();
  for (int64_t token = blockIdx.x; token < s.tokens; token += gridDim.x) {
    MakeTable(s, frequencies, token, table);
    __syncthreads();
    const T* from_query = query + token * s.query_width();
    const T* from_joined = key_value + token * s.heads * s.joined();
    const T* from_rotary = key_rotary + token * s.rotary();
    T* to = qkv + token * s.width();
    CopyHeads<N, T>(
        s.heads, s.fixed, [&](int head) { return from_query + head * s.head_size; },
        [&](int head) { return to + head * s.head_size; });
    CopyHeads<N, T>(
        s.heads, s.fixed, [&](int head) { return from_joined + head * s.joined(); },
        [&](int head) { return to + s.key_at(head); });
    CopyHeads<N, T>(
        s.heads, s.value_size, [&](int head) { return from_joined + head * s.joined() + s.fixed; },
        [&](int head) { return to + s.value_at(head); });
    for (int i = static_cast<int>(threadIdx.x); i < s.heads * s.rotary(); i += kThreads) {
      const int head = i / s.rotary();
      const int d = i % s.rotary();
      const T* turning = from_query + head * s.head_size + s.fixed;
      to[head * s.head_size + s.fixed + d] =
          FromFloat<T>(Turned(s, table, d, [&](int at) { return ToFloat(turning[at]); }));
      to[s.key_at(head) + s.fixed + d] =
          FromFloat<T>(Turned(s, table, d, [&](int at) { return ToFloat(from_rotary[at]); }));
    }
    __syncthreads();
  }
}

template <int N, typename T>
__global__ void __launch_bounds__(kThreads, kResidentBlocks)
    JoinBackwardKernel(JoinShape s, const RotaryFrequencies frequencies, const T* __restrict__ dqkv,
                       T* __restrict__ dquery, T* __restrict__ dkey_value,
                       T* __restrict__ dkey_rotary) {
  float* table = SharedMemory<float>();
  float* sums = table + 2 * s.pairs;
  for (int64_t token = blockIdx.x; token < s.tokens; token += gridDim.x) {
    MakeTable(s, frequencies, token, table);
    const T* from = dqkv + token * s.width();
    for (int d = static_cast<int>(threadIdx.x); d < s.rotary(); d += kThreads) {
      float sum = 0.0f;
#pragma unroll kUnroll
      for (int head = 0; head < s.heads; ++head) sum += ToFloat(from[s.key_at(head) + s.fixed + d]);
      sums[d] = sum;
    }
    __syncthreads();
    T* to_query = dquery + token * s.query_width();
    T* to_joined = dkey_value + token * s.heads * s.joined();
    CopyHeads<N, T>(
        s.heads, s.fixed, [&](int head) { return from + head * s.head_size; },
        [&](int head) { return to_query + head * s.head_size; });
    CopyHeads<N, T>(
        s.heads, s.fixed, [&](int head) { return from + s.key_at(head); },
        [&](int head) { return to_joined + head * s.joined(); });
    CopyHeads<N, T>(
        s.heads, s.value_size, [&](int head) { return from + s.value_at(head); },
        [&](int head) { return to_joined + head * s.joined() + s.fixed; });
    for (int i = static_cast<int>(threadIdx.x); i < s.heads * s.rotary(); i += kThreads) {
      const int head = i / s.rotary();
      const int d = i % s.rotary();
      const T* turning = from + head * s.head_size + s.fixed;
      to_query[head * s.head_size + s.fixed + d] =
          FromFloat<T>(Turned(s, table, d, [&](int at) { return ToFloat(turning[at]); }));
    }
    for (int d = static_cast<int>(threadIdx.x); d < s.rotary(); d += kThreads) {
      dkey_rotary[token * s.rotary() + d] =
          FromFloat<T>(Turned(s, table, d, [&](int at) { return sums[at]; }));
    }
    __syncthreads();
  }
}

// Whether every run of elements that keeps its order begins and ends on a pack.
template <typename T, typename... Pointers>
bool InPacks(const JoinShape& s, Pointers... pointers) {
  constexpr int kN = kPackSize<T>;
  return s.fixed % kN == 0 && s.value_size % kN == 0 && RowsAligned<T>(s.head_size, pointers...);
}

JoinShape ShapeOf(const AttentionShape& shape, const Rotary& rotary) {
  return {.tokens = shape.tokens(),
          .positions = shape.rows.view(),
          .heads = static_cast<int>(shape.heads),
          .head_size = static_cast<int>(shape.head_size),
          .fixed = static_cast<int>(shape.head_size - rotary.dims),
          .value_size = static_cast<int>(shape.value_size()),
          .pairs = static_cast<int>(rotary.dims / 2),
          .interleaved = rotary.interleaved};
}

// Of a table and the sums of a token.
size_t SharedBytes(const JoinShape& s) { return 4 * static_cast<size_t>(s.pairs) * sizeof(float); }

dim3 GridOf(const LaunchContext& context, const JoinShape& s) {
  return dim3(GridFor(context, s.tokens, 1, kBlocksPerMultiprocessor));
}

void JoinHeadsCuda(const AttentionShape& shape, const Rotary& rotary, const Tensor& query,
                   const Tensor& key_value, const Tensor& key_rotary, Tensor& qkv) {
  const LaunchContext context = ContextOf(qkv.device());
  const JoinShape s = ShapeOf(shape, rotary);
  const RotaryFrequencies frequencies = FrequenciesOf(rotary, shape.head_size, /*inverse=*/false);
  DispatchFloat(qkv.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool packs = InPacks<T>(s, query.raw(), key_value.raw(), qkv.raw());
    Launch(context, packs ? JoinKernel<kPackSize<T>, T> : JoinKernel<1, T>, GridOf(context, s),
           dim3(kThreads), SharedBytes(s), s, frequencies, Data<const T>(query),
           Data<const T>(key_value), Data<const T>(key_rotary), Data<T>(qkv));
  });
}

void JoinHeadsBackwardCuda(const AttentionShape& shape, const Rotary& rotary, const Tensor& dqkv,
                           Tensor& dquery, Tensor& dkey_value, Tensor& dkey_rotary) {
  const LaunchContext context = ContextOf(dqkv.device());
  const JoinShape s = ShapeOf(shape, rotary);
  const RotaryFrequencies frequencies = FrequenciesOf(rotary, shape.head_size, /*inverse=*/true);
  DispatchFloat(dqkv.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool packs = InPacks<T>(s, dqkv.raw(), dquery.raw(), dkey_value.raw());
    Launch(context, packs ? JoinBackwardKernel<kPackSize<T>, T> : JoinBackwardKernel<1, T>,
           GridOf(context, s), dim3(kThreads), SharedBytes(s), s, frequencies, Data<const T>(dqkv),
           Data<T>(dquery), Data<T>(dkey_value), Data<T>(dkey_rotary));
  });
}

}  // namespace

void FillLatentHeadsOps(CudaOps& ops) {
  ops.join_heads = JoinHeadsCuda;
  ops.join_heads_backward = JoinHeadsBackwardCuda;
}

}  // namespace trimtab
