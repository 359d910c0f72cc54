// The gradient of queries, keys and values, turned back on its way to fp8. Contract in
// engine/ops/fp8/fused_fp8.h.
#include "engine/ops/cuda/attention/rope_table.h"
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/fp8/fp8_producer.h"

namespace trimtab {
namespace {

struct TurnedShape {
  int64_t rows;
  int columns;  // of a token's qkv
  RowPositions positions;
  int turned;  // columns of the heads that turn, the first ones
  int head_size;
  int pairs;  // per head that turn
  bool interleaved;
};

// A producer (fp8_producer.h) of the tiles of the tokens in `table`. Both values of a pair are read
// for each of the two: the other time from the cache, for heads seldom reach beyond a tile.
template <typename T, bool kAligned>
struct TurnedMatrix {
  static constexpr int kOutputs = 1;
  static constexpr int kGroups = 1;
  static constexpr bool kColumnSums = false;
  static constexpr int kPairs = kAligned ? kTileVector : 1;  // whose angles are read together
  static constexpr int kWord = kAngleWord<kPairs>;
  static constexpr int kSteps = kTileVector / kPairs;
  static constexpr int kStill = -1;
  struct Raw {
    Pack<T, kTileVector> own;
    Pack<T, kTileVector> partner;
    // Twice the place in `table` of the angles of kPairs columns, plus 1 for second values of
    // pairs; kStill for what does not turn.
    int entry[kSteps];
  };

  const T* x;
  TurnedShape shape;
  const float* table;
  int64_t first_token;

  // The entry of `column` and those after it, which turn alike, and the distance to their partners.
  __device__ __forceinline__ int Find(int64_t row, int64_t column, int& reach) const {
    const int dim = static_cast<int>(column) % shape.head_size;
    reach = 0;
    if (column >= shape.turned || dim >= 2 * shape.pairs) return kStill;
    const bool second = shape.interleaved ? dim % 2 != 0 : dim >= shape.pairs;
    const int pair = shape.interleaved ? dim / 2 : dim % shape.pairs;
    reach = shape.interleaved ? 1 : shape.pairs;
    if (second) reach = -reach;
    const int token = static_cast<int>(row - first_token);
    const int place = token * 2 * shape.pairs + pair / kPairs * kWord;
    return 2 * place + (second ? 1 : 0);
  }

  __device__ __forceinline__ void Load(int64_t row, int64_t column, Raw& raw) const {
    const T* source = x + row * shape.columns + column;
    int reach;
    raw.entry[0] = Find(row, column, reach);
    raw.own = LoadPack<kTileVector>(source);
    raw.partner = LoadPack<kTileVector>(source + reach);
  }
  __device__ __forceinline__ void LoadOne(int64_t row, int64_t column, int index, Raw& raw) const {
    const T* source = x + row * shape.columns + column;
    int reach;
    raw.entry[index] = Find(row, column, reach);
    raw.own[index] = *source;
    raw.partner[index] = source[reach];
  }
  __device__ __forceinline__ void Compute(const Raw& raw, float (&values)[1][kTileVector]) const {
#pragma unroll
    for (int first = 0; first < kTileVector; first += kWord) {
      const int entry = raw.entry[first / kPairs];
      const float sign = entry % 2 != 0 ? 1.0f : -1.0f;
      const float* angles = table + (entry == kStill ? 0 : entry / 2) +
                            first % kPairs / kWord * (shape.pairs / kPairs) * kWord;
      float sine[kWord];
      float cosine[kWord];
      LoadFloats(angles, sine);
      LoadFloats(angles + shape.pairs, cosine);
#pragma unroll
      for (int k = 0; k < kWord; ++k) {
        const float own = ToFloat(raw.own[first + k]);
        const float partner = ToFloat(raw.partner[first + k]);
        // As Rope stores it.
        const float turned = ToFloat(FromFloat<T>(own * cosine[k] + sign * partner * sine[k]));
        values[0][first + k] = entry == kStill ? own : turned;
      }
    }
  }
};

// Blocks that a multiprocessor runs at once: as many as leave each thread the registers for what it
// reads.
constexpr int kTurnedResident = 2;

// A block has `tiles` tiles of the same tokens, one after the other: for all of them it makes one
// table of angles.
template <bool kAligned, typename T>
__global__ void __launch_bounds__(kTileThreads, kAligned ? kTurnedResident : 1)
    RopeFp8Kernel(const T* x, TurnedShape shape, const RotaryFrequencies frequencies,
                  CodeTarget<E5M2> target, int tiles) {
  using Matrix = TurnedMatrix<T, kAligned>;
  using Tile = TransposedTile<Matrix::kGroups>;
  __shared__ Tile tile[Matrix::kOutputs];
  float* table = SharedMemory<float>();
  const int64_t first_row = int64_t{blockIdx.y} * Tile::kRows;
  const int64_t left = shape.rows - first_row;
  FillAngles<Matrix::kPairs, kTileThreads>(
      table, first_row, left < Tile::kRows ? static_cast<int>(left) : Tile::kRows, shape.pairs,
      shape.positions, frequencies);
  __syncthreads();
  const Matrix matrix = {x, shape, table, first_row};
  uint32_t largest = 0;
  float sums[kTileVector] = {};
  const int64_t begin = int64_t{blockIdx.x} * tiles * kTileColumns;
  const int64_t end = begin + int64_t{tiles} * kTileColumns;
  for (int64_t column = begin; column < end && column < shape.columns; column += kTileColumns) {
    ProduceTile<kAligned>(matrix, target, shape.rows, shape.columns, first_row, column, tile,
                          largest, sums);
    if (target.transposed == nullptr) continue;
    __syncthreads();
    StoreTransposed(target, tile, shape.rows, shape.columns, first_row, column);
    __syncthreads();
  }
  if (target.amax != nullptr) RaiseAmax(largest, target.amax);
}

void RopeBackwardFp8Cuda(const AttentionShape& shape, const Rotary& rotary, const Tensor& dqkv,
                         const Tensor& scale, Fp8Output& out) {
  constexpr int64_t kRows = TransposedTile<1>::kRows;
  const RotaryFrequencies frequencies = FrequenciesOf(rotary, shape.head_size, /*inverse=*/true);
  const int64_t pairs = rotary.pairs(shape.head_size);
  const TurnedShape turned = {
      .rows = shape.tokens(),
      .columns = static_cast<int>(shape.qkv_size()),
      .positions = shape.rows.view(),
      .turned = static_cast<int>((shape.heads + shape.kv_heads) * shape.head_size),
      .head_size = static_cast<int>(shape.head_size),
      .pairs = static_cast<int>(pairs),
      .interleaved = rotary.interleaved};
  const LaunchContext context = ContextOf(scale.device());
  const int64_t row_tiles = (shape.tokens() + kRows - 1) / kRows;
  const int64_t column_tiles = (shape.qkv_size() + kTileColumns - 1) / kTileColumns;
  // As many to a block as leave all multiprocessors full twice.
  const int64_t blocks = int64_t{context.multiprocessors} * kTurnedResident * 2;
  const int64_t tiles = std::clamp<int64_t>(row_tiles * column_tiles / blocks, 1, column_tiles);
  const dim3 grid(static_cast<unsigned>((column_tiles + tiles - 1) / tiles),
                  static_cast<unsigned>(row_tiles));
  const size_t table = static_cast<size_t>(std::min(shape.tokens(), kRows) * 2 * pairs);
  DispatchFloat(dqkv.dtype(), [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    const CodeTarget<E5M2> target = TargetOf<E5M2>(scale, out);
    // Whole packs of a row turn alike.
    const bool aligned = !rotary.interleaved && pairs % kTileVector == 0 &&
                         shape.head_size % kTileVector == 0 && turned.columns % kTileVector == 0 &&
                         IsAligned(dqkv.raw()) && IsAligned(target.rows, kTileVector);
    Launch(context, aligned ? RopeFp8Kernel<true, T> : RopeFp8Kernel<false, T>, grid,
           dim3(kTileThreads), table * sizeof(float), Data<T>(dqkv), turned, frequencies, target,
           static_cast<int>(tiles));
  });
}

}  // namespace

void FillRopeFp8Ops(CudaOps& ops) { ops.rope_backward_fp8 = RopeBackwardFp8Cuda; }

}  // namespace trimtab
