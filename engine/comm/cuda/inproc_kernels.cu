#include "engine/comm/cuda/inproc_kernels.h"

#include <algorithm>
#include <type_traits>

#include "engine/comm/cuda_comm.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

constexpr int kBlock = 256;
constexpr int kBlocksPerMultiprocessor = 8;

template <typename Pointer>
struct Buffers {
  Pointer data[kMaxCudaInprocRanks];
  int count;
};

/// How elements stored as T are added up: floats in fp32; integers unsigned, as they wrap around.
template <typename T>
struct Element {
  using Sum = float;
  TRIMTAB_HOST_DEVICE static Sum Load(T value) { return ToFloat(value); }
  TRIMTAB_HOST_DEVICE static T Store(Sum sum) { return FromFloat<T>(sum); }
  TRIMTAB_HOST_DEVICE static bool Less(Sum a, Sum b) { return a < b || b != b; }
};
template <>
struct Element<int32_t> {
  using Sum = uint32_t;
  TRIMTAB_HOST_DEVICE static Sum Load(int32_t value) { return static_cast<Sum>(value); }
  TRIMTAB_HOST_DEVICE static int32_t Store(Sum sum) { return static_cast<int32_t>(sum); }
  TRIMTAB_HOST_DEVICE static bool Less(Sum a, Sum b) { return Store(a) < Store(b); }
};
template <>
struct Element<int64_t> {
  using Sum = uint64_t;
  TRIMTAB_HOST_DEVICE static Sum Load(int64_t value) { return static_cast<Sum>(value); }
  TRIMTAB_HOST_DEVICE static int64_t Store(Sum sum) { return static_cast<int64_t>(sum); }
  TRIMTAB_HOST_DEVICE static bool Less(Sum a, Sum b) { return Store(a) < Store(b); }
};

/// Elements [begin, begin + packs * N) of all sources, reduced, to `shift` elements further in all
/// targets. A target may be a source: every element is read from all of them before it is written.
template <typename T, bool kMaximum, int N>
__global__ void ReduceBuffers(Buffers<const void*> sources, Buffers<void*> targets, int64_t begin,
                              int64_t packs, int64_t shift) {
  using E = Element<T>;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < packs;
       i += stride) {
    const int64_t at = begin + i * N;
    typename E::Sum sum[N];
    Pack<T, N> pack = LoadPack<N>(static_cast<const T*>(sources.data[0]) + at);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] = E::Load(pack[j]);
    for (int rank = 1; rank < sources.count; ++rank) {
      pack = LoadPack<N>(static_cast<const T*>(sources.data[rank]) + at);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const typename E::Sum value = E::Load(pack[j]);
        if constexpr (kMaximum) {
          sum[j] = E::Less(sum[j], value) ? value : sum[j];
        } else {
          sum[j] += value;
        }
      }
    }
#pragma unroll
    for (int j = 0; j < N; ++j) pack[j] = E::Store(sum[j]);
    for (int rank = 0; rank < targets.count; ++rank) {
      StorePack(static_cast<T*>(targets.data[rank]) + at + shift, pack);
    }
  }
}

/// Everything a launch needs but the types.
struct Job {
  const LaunchContext& context;
  Buffers<const void*> sources{};
  Buffers<void*> targets{};
  int64_t begin = 0;
  int64_t end = 0;
  int64_t shift = 0;

  /// Whether packs may be used from `begin` on in every buffer.
  template <typename T>
  bool Aligned() const {
    const auto aligned = [](const void* buffer, int64_t element) {
      return IsAligned(static_cast<const T*>(buffer) + element);
    };
    for (int i = 0; i < sources.count; ++i) {
      if (!aligned(sources.data[i], begin)) return false;
    }
    for (int i = 0; i < targets.count; ++i) {
      if (!aligned(targets.data[i], begin + shift)) return false;
    }
    return true;
  }

  template <typename T, bool kMaximum, int N>
  void Submit(int64_t from, int64_t packs) const {
    Launch(context, ReduceBuffers<T, kMaximum, N>,
           GridFor(context, packs, kBlock, kBlocksPerMultiprocessor), kBlock, 0, sources, targets,
           from, packs, shift);
  }

  template <typename T, bool kMaximum>
  void Run() const {
    const int64_t packs = Aligned<T>() ? (end - begin) / kPackSize<T> : 0;
    const int64_t rest = begin + packs * kPackSize<T>;
    Submit<T, kMaximum, kPackSize<T>>(begin, packs);
    Submit<T, kMaximum, 1>(rest, end - rest);
  }

  template <typename T>
  void Run(ReduceOp op) const {
    if (op == ReduceOp::kSum) return Run<T, false>();
    Run<T, true>();
  }
};

}  // namespace

void ReduceOnDevice(Device& device, DType dtype, ReduceOp op, std::span<const void* const> sources,
                    std::span<void* const> targets, int64_t begin, int64_t end, int64_t shift) {
  if (sources.size() > kMaxCudaInprocRanks) {
    throw EnvironmentError(fmt::format("{} in-process ranks on cuda devices; expected at most {}",
                                       sources.size(), kMaxCudaInprocRanks));
  }
  const LaunchContext context = ContextOf(device);
  Job job{context};
  std::copy(sources.begin(), sources.end(), job.sources.data);
  std::copy(targets.begin(), targets.end(), job.targets.data);
  job.sources.count = static_cast<int>(sources.size());
  job.targets.count = static_cast<int>(targets.size());
  job.begin = begin;
  job.end = end;
  job.shift = shift;
  switch (dtype) {
    case DType::kF32:
      return job.Run<float>(op);
    case DType::kBf16:
      return job.Run<Bf16>(op);
    case DType::kF16:
      return job.Run<F16>(op);
    case DType::kI32:
      return job.Run<int32_t>(op);
    case DType::kI64:
      return job.Run<int64_t>(op);
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kU16:
    case DType::kI8:
    case DType::kU8:
      break;
  }
  TRIMTAB_ASSERT(false, "no sum or maximum of {}", Name(dtype));
}

void CopyOnDevice(Device& device, const void* from, void* to, int64_t bytes) {
  CopyBytes(ContextOf(device), to, from, bytes);
}

}  // namespace trimtab
