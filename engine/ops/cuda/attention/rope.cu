// Rotary position embedding. Contract in engine/ops/attention/attention.h.
#include "engine/ops/cuda/attention/rope_table.h"
#include "engine/ops/cuda/elementwise/fill.h"

namespace trimtab {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 2;  // pairs of packs in flight per thread
constexpr int kItems = kThreads * kUnroll;
struct RopeShape {
  int64_t tokens;
  int64_t width;  // of a token's qkv
  RowPositions positions;
  int heads;  // that turn
  int head_size;
  int pairs;        // per head that turn
  int pair_stride;  // between the first dims of neighbouring pairs
  int pair_reach;   // from the first dim of a pair to the second
};

// An item is N pairs of one head: two packs, or two single elements at any distance. Items are
// numbered over tokens, heads, packs; each block takes kItems of them and first makes a table of
// the angles of their tokens, while the items are on their way.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    RopeKernel(T* qkv, RopeShape shape, const RotaryFrequencies frequencies) {
  constexpr int kWord = kAngleWord<N>;
  float* table = SharedMemory<float>();
  const int packs = shape.pairs / N;
  const int per_token = shape.heads * packs;
  const int64_t first = int64_t{blockIdx.x} * kItems;
  const int64_t first_token = first / per_token;
  const int first_within = static_cast<int>(first % per_token);
  const int64_t rest = shape.tokens * per_token - first;
  const int items = rest < kItems ? static_cast<int>(rest) : kItems;

  T* target[kUnroll];
  int entry[kUnroll];
  Pack<T, N> low[kUnroll];
  Pack<T, N> high[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int item = static_cast<int>(threadIdx.x) + u * kThreads;
    if (item >= items) continue;
    const int within = first_within + item;
    const int token = within / per_token;
    const int head = within % per_token / packs;
    const int pack = within % packs;
    target[u] = qkv + (first_token + token) * shape.width + int64_t{head} * shape.head_size +
                int64_t{pack} * N * shape.pair_stride;
    entry[u] = token * 2 * shape.pairs + pack * kWord;
    low[u] = LoadPack<N>(target[u]);
    high[u] = LoadPack<N>(target[u] + shape.pair_reach);
  }

  const int tokens = (first_within + items - 1) / per_token + 1;
  FillAngles<N, kThreads>(table, first_token, tokens, shape.pairs, shape.positions, frequencies);
  __syncthreads();

#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (static_cast<int>(threadIdx.x) + u * kThreads >= items) continue;
    float turned_low[N];
    float turned_high[N];
#pragma unroll
    for (int word = 0; word < N / kWord; ++word) {
      const float* angles = table + entry[u] + word * packs * kWord;
      float sine[kWord];
      float cosine[kWord];
      LoadFloats(angles, sine);
      LoadFloats(angles + shape.pairs, cosine);
#pragma unroll
      for (int j = 0; j < kWord; ++j) {
        const int k = word * kWord + j;
        const float a = ToFloat(low[u][k]);
        const float b = ToFloat(high[u][k]);
        turned_low[k] = a * cosine[j] - b * sine[j];
        turned_high[k] = b * cosine[j] + a * sine[j];
      }
    }
    StoreFloats(target[u], turned_low);
    StoreFloats(target[u] + shape.pair_reach, turned_high);
  }
}

template <typename T, int N>
void LaunchRope(const LaunchContext& context, T* qkv, const RopeShape& shape,
                const RotaryFrequencies& frequencies) {
  const int64_t per_token = int64_t{shape.heads} * (shape.pairs / N);
  const int64_t items = shape.tokens * per_token;
  // A block's items may begin and end within a token.
  const int64_t tokens = std::min(shape.tokens, kItems / per_token + 2);
  const size_t table = static_cast<size_t>(tokens * 2 * shape.pairs) * sizeof(float);
  Launch(context, RopeKernel<T, N>, dim3(static_cast<unsigned>((items + kItems - 1) / kItems)),
         dim3(kThreads), table, qkv, shape, frequencies);
}

void RopeCuda(const AttentionShape& shape, const Rotary& rotary, bool inverse, Tensor& qkv) {
  const int64_t pairs = rotary.pairs(shape.head_size);
  // From the host: the device's double pow is slow, and these are the bits that the cpu uses.
  const RotaryFrequencies frequencies = FrequenciesOf(rotary, shape.head_size, inverse);
  const RopeShape kernel_shape = {.tokens = shape.tokens(),
                                  .width = shape.qkv_size(),
                                  .positions = shape.rows.view(),
                                  .heads = static_cast<int>(shape.heads + shape.kv_heads),
                                  .head_size = static_cast<int>(shape.head_size),
                                  .pairs = static_cast<int>(pairs),
                                  .pair_stride = rotary.interleaved ? 2 : 1,
                                  .pair_reach = rotary.interleaved ? 1 : static_cast<int>(pairs)};
  if (kernel_shape.tokens == 0 || pairs == 0) return;
  const LaunchContext context = ContextOf(qkv.device());
  DispatchFloat(qkv.dtype(), [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    constexpr int kN = kPackSize<T>;
    T* data = static_cast<T*>(qkv.raw());
    // With whole packs in a head and in half of what turns, all items begin on a pack.
    if (!rotary.interleaved && RowsAligned<T>(pairs, data) &&
        RowsAligned<T>(shape.head_size, data)) {
      LaunchRope<T, kN>(context, data, kernel_shape, frequencies);
    } else {
      LaunchRope<T, 1>(context, data, kernel_shape, frequencies);
    }
  });
}

}  // namespace

void FillRopeOps(CudaOps& ops) { ops.rope = RopeCuda; }

}  // namespace trimtab
