// Activations whose result goes straight to fp8. Contract in engine/ops/fp8/fused_fp8.h.
#include "engine/ops/cuda/activation/activation_math.h"
#include "engine/ops/cuda/column_sums.h"
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/fp8/fp8_producer.h"

namespace trimtab {
namespace {

// Producers (fp8_producer.h). Those that read several tensors have tiles of half the rows, for the
// sake of registers.

template <typename T>
struct GeluProducer {
  static constexpr int kOutputs = 1;
  static constexpr int kGroups = sizeof(T) == 2 ? 2 : 1;
  static constexpr bool kColumnSums = false;
  using Raw = Pack<T, kTileVector>;

  const T* x;
  int64_t columns;

  __device__ __forceinline__ void Load(int64_t row, int64_t column, Raw& raw) const {
    raw = LoadPack<kTileVector>(x + row * columns + column);
  }
  __device__ __forceinline__ void LoadOne(int64_t row, int64_t column, int index, Raw& raw) const {
    raw[index] = x[row * columns + column];
  }
  __device__ __forceinline__ void Compute(const Raw& raw, float (&values)[1][kTileVector]) const {
#pragma unroll
    for (int j = 0; j < kTileVector; ++j) {
      values[0][j] = ActivationMath<T>::Gelu(ToFloat(raw[j]));
    }
  }
};

template <typename T>
struct GeluBackwardProducer {
  static constexpr int kOutputs = 1;
  static constexpr int kGroups = 1;
  static constexpr bool kColumnSums = true;
  struct Raw {
    Pack<T, kTileVector> x;
    Pack<T, kTileVector> dy;
  };

  const T* x;
  const T* dy;
  int64_t columns;

  __device__ __forceinline__ void Load(int64_t row, int64_t column, Raw& raw) const {
    raw.x = LoadPack<kTileVector>(x + row * columns + column);
    raw.dy = LoadPack<kTileVector>(dy + row * columns + column);
  }
  __device__ __forceinline__ void LoadOne(int64_t row, int64_t column, int index, Raw& raw) const {
    raw.x[index] = x[row * columns + column];
    raw.dy[index] = dy[row * columns + column];
  }
  __device__ __forceinline__ void Compute(const Raw& raw, float (&values)[1][kTileVector]) const {
#pragma unroll
    for (int j = 0; j < kTileVector; ++j) {
      values[0][j] = ToFloat(raw.dy[j]) * ActivationMath<T>::GeluDerivative(ToFloat(raw.x[j]));
    }
  }
};

template <typename T>
struct SwiGluProducer {
  static constexpr int kOutputs = 1;
  static constexpr int kGroups = 1;
  static constexpr bool kColumnSums = false;
  struct Raw {
    Pack<T, kTileVector> gate;
    Pack<T, kTileVector> up;
  };

  const T* gate_up;
  int64_t columns;

  __device__ __forceinline__ void Load(int64_t row, int64_t column, Raw& raw) const {
    const T* gate = gate_up + row * 2 * columns + column;
    raw.gate = LoadPack<kTileVector>(gate);
    raw.up = LoadPack<kTileVector>(gate + columns);
  }
  __device__ __forceinline__ void LoadOne(int64_t row, int64_t column, int index, Raw& raw) const {
    const T* gate = gate_up + row * 2 * columns + column;
    raw.gate[index] = gate[0];
    raw.up[index] = gate[columns];
  }
  __device__ __forceinline__ void Compute(const Raw& raw, float (&values)[1][kTileVector]) const {
#pragma unroll
    for (int j = 0; j < kTileVector; ++j) {
      values[0][j] = ActivationMath<T>::Silu(ToFloat(raw.gate[j])) * ToFloat(raw.up[j]);
    }
  }
};

template <typename T>
struct SwiGluBackwardProducer {
  static constexpr int kOutputs = 2;  // of gate, of up
  static constexpr int kGroups = 1;
  static constexpr bool kColumnSums = false;
  struct Raw {
    Pack<T, kTileVector> gate;
    Pack<T, kTileVector> up;
    Pack<T, kTileVector> dy;
  };

  const T* gate_up;
  const T* dy;
  int64_t columns;

  __device__ __forceinline__ void Load(int64_t row, int64_t column, Raw& raw) const {
    const T* gate = gate_up + row * 2 * columns + column;
    raw.gate = LoadPack<kTileVector>(gate);
    raw.up = LoadPack<kTileVector>(gate + columns);
    raw.dy = LoadPack<kTileVector>(dy + row * columns + column);
  }
  __device__ __forceinline__ void LoadOne(int64_t row, int64_t column, int index, Raw& raw) const {
    const T* gate = gate_up + row * 2 * columns + column;
    raw.gate[index] = gate[0];
    raw.up[index] = gate[columns];
    raw.dy[index] = dy[row * columns + column];
  }
  __device__ __forceinline__ void Compute(const Raw& raw, float (&values)[2][kTileVector]) const {
#pragma unroll
    for (int j = 0; j < kTileVector; ++j) {
      ActivationMath<T>::SwiGluBackward(ToFloat(raw.gate[j]), ToFloat(raw.up[j]),
                                        ToFloat(raw.dy[j]), values[0][j], values[1][j]);
    }
  }
};

template <typename Pointer>
using Stored = std::remove_pointer_t<Pointer>;

void GeluForwardFp8Cuda(const Tensor& x, const Tensor& scale, Fp8Output& out) {
  if (x.numel() == 0) return;
  const LaunchContext context = ContextOf(scale.device());
  DispatchFloat(x.dtype(), [&](auto* value) {
    using T = Stored<decltype(value)>;
    DispatchFp8(TypeOf(out), [&](auto* code) {
      using F8 = Stored<decltype(code)>;
      const GeluProducer<T> producer = {Data<T>(x), x.dim(1)};
      LaunchProduceFp8(context, producer, x.dim(0), x.dim(1), TargetOf<F8>(scale, out),
                       RowsAligned<T>(x.dim(1), x.raw()));
    });
  });
}

void GeluBackwardFp8Cuda(const Tensor& x, const Tensor& dy, const Tensor& scale, Fp8Output& out,
                         Tensor& dbias, bool accumulate) {
  const int64_t rows = x.dim(0);
  const int64_t columns = x.dim(1);
  if (columns == 0) return;
  const LaunchContext context = ContextOf(scale.device());
  const auto produce = [&](const RowRange& part, float* partial) {
    DispatchFloat(x.dtype(), [&](auto* value) {
      using T = Stored<decltype(value)>;
      using Producer = GeluBackwardProducer<T>;
      static_assert(Producer::kGroups == 1);  // a row of sums for every kTileRowsPerGroup
      LaunchProduceFp8(context, Producer{Data<T>(x), Data<T>(dy), columns}, rows, columns,
                       TargetOf<E5M2>(scale, out, partial),
                       RowsAligned<T>(columns, x.raw(), dy.raw()), part);
    });
  };
  if (!dbias.defined()) return produce({0, rows}, nullptr);
  // As many tiles at once as there is scratch for the sums of.
  const int64_t tiles = (rows + kTileRowsPerGroup - 1) / kTileRowsPerGroup;
  const int64_t room = context.scratch_bytes / (columns * int64_t{sizeof(float)});
  const int64_t at_once = std::max<int64_t>(1, std::min(tiles, room));
  auto* partial = context.Scratch<float>(at_once * columns);
  for (int64_t tile = 0; tile == 0 || tile < tiles; tile += at_once) {
    const int64_t count = std::min(at_once, tiles - tile);
    produce({tile * kTileRowsPerGroup, std::min((tile + count) * kTileRowsPerGroup, rows)},
            partial);
    DispatchGradient(dbias.dtype(), [&](auto* gradient) {
      using G = Stored<decltype(gradient)>;
      LaunchSumPartials(context, partial, count, columns, 1,
                        ColumnTargets<G>{{Data<G>(dbias), nullptr}, accumulate || tile > 0});
    });
  }
}

void SwiGluForwardFp8Cuda(const Tensor& gate_up, const Tensor& scale, Fp8Output& out) {
  if (gate_up.numel() == 0) return;
  const LaunchContext context = ContextOf(scale.device());
  const int64_t columns = gate_up.dim(1) / 2;
  DispatchFloat(gate_up.dtype(), [&](auto* value) {
    using T = Stored<decltype(value)>;
    const SwiGluProducer<T> producer = {Data<T>(gate_up), columns};
    LaunchProduceFp8(context, producer, gate_up.dim(0), columns, TargetOf<E4M3>(scale, out),
                     RowsAligned<T>(columns, gate_up.raw()));
  });
}

void SwiGluBackwardFp8Cuda(const Tensor& gate_up, const Tensor& dy, const Tensor& scale,
                           Fp8Output& out) {
  if (dy.numel() == 0) return;
  const LaunchContext context = ContextOf(scale.device());
  const int64_t columns = dy.dim(1);
  DispatchFloat(dy.dtype(), [&](auto* value) {
    using T = Stored<decltype(value)>;
    const SwiGluBackwardProducer<T> producer = {Data<T>(gate_up), Data<T>(dy), columns};
    LaunchProduceFp8(context, producer, dy.dim(0), columns, TargetOf<E5M2>(scale, out),
                     RowsAligned<T>(columns, gate_up.raw(), dy.raw()));
  });
}

}  // namespace

void FillActivationFp8Ops(CudaOps& ops) {
  ops.gelu_forward_fp8 = GeluForwardFp8Cuda;
  ops.gelu_backward_fp8 = GeluBackwardFp8Cuda;
  ops.swiglu_forward_fp8 = SwiGluForwardFp8Cuda;
  ops.swiglu_backward_fp8 = SwiGluBackwardFp8Cuda;
}

}  // namespace trimtab
