// TFLOP/s of every implementation of attention on the first GPU, for the shapes that decide:
//   bazel run //tests/engine/ops/cuda:attention_benchmark
// FLOPs are those of the causal half (2 products forward, 5 back), whatever an implementation
// computes beside them. What is timed is replays of captured calls, so the host's part of a call,
// which a training step hides, does not count.
#include <fmt/format.h>

#include <random>
#include <string>
#include <vector>

#include "engine/device/cuda/cuda_device.h"
#include "engine/ops/cuda/attention/attention_kernels.h"
#include "tests/engine/ops/cuda/meter.h"

namespace trimtab {
namespace {

constexpr MemoryTag kTag = MemoryTag::kActivations;

// Random values: a GPU draws less power, and so runs faster, over zeros.
Tensor Random(Device& device, const Shape& shape, DType dtype, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& value : values) value = distribution(generator);
  Tensor tensor = Tensor::Empty(device, shape, dtype, kTag);
  CopyFromHost(tensor, values);
  return tensor;
}

void Measure(CudaDevice& device, const AttentionShape& s, DType dtype) {
  const Shape qkv_shape = {s.tokens(), s.qkv_size()};
  const Shape out_shape = {s.tokens(), s.out_size()};
  const Tensor qkv = Random(device, qkv_shape, dtype, 1);
  const Tensor dout = Random(device, out_shape, dtype, 2);
  const Tensor out = Tensor::Empty(device, out_shape, dtype, kTag);
  const Tensor dqkv = Tensor::Empty(device, qkv_shape, dtype, kTag);
  const Tensor log_sum_exp =
      Tensor::Empty(device, {s.rows.batch, s.heads, s.rows.sequence}, DType::kF32, kTag);
  const int64_t bytes = AttentionBackwardWorkspaceBytes(s, device.executor());
  const Tensor scratch = Tensor::Empty(device, {bytes / 4}, DType::kF32, kTag);
  const AttentionForwardCall forward = {s, dtype, qkv.raw(), out.raw(), log_sum_exp.f32()};
  const AttentionBackwardCall backward = {
      s, dtype, qkv.raw(), out.raw(), log_sum_exp.f32(), dout.raw(), dqkv.raw(), scratch.f32()};

  for (const auto implementation : {AttentionImplementation::kCudnn, AttentionImplementation::kMma,
                                    AttentionImplementation::kSimple}) {
    std::string line =
        fmt::format("b{} T{} heads {}/{} D{} {} {:6}:", s.rows.batch, s.rows.sequence, s.heads,
                    s.kv_heads, s.head_size, Name(dtype), Name(implementation));
    for (const auto pass : {AttentionPass::kForward, AttentionPass::kBackward}) {
      const bool is_forward = pass == AttentionPass::kForward;
      line += is_forward ? " forward" : "  backward";
      const std::string refusal = AttentionRefusal(device, implementation, pass, s, dtype);
      if (!refusal.empty()) {
        line += " refused: " + refusal;
        continue;
      }
      const double seconds = MedianSeconds(device, [&] {
        is_forward ? RunAttentionForward(device, implementation, forward)
                   : RunAttentionBackward(device, implementation, backward);
      });
      const OpRecord record =
          is_forward ? AttentionForwardRecord(s, dtype) : AttentionBackwardRecord(s, dtype);
      line += fmt::format(" {:7.3f} ms {:6.1f} TFLOP/s", seconds * 1e3,
                          static_cast<double>(record.flops) / seconds * 1e-12);
    }
    fmt::print("{}\n", line);
  }
}

int Run() {
  const CudaAvailability found = FindDevicesOfDriver();
  if (found.device_count == 0) {
    fmt::print(stderr, "no GPU: {}\n", found.reason);
    return static_cast<int>(ExitCode::kEnvironment);
  }
  CudaDevice device{CudaDeviceOptions{}};
  Measure(device, {{2, 4096}, 32, 32, 128}, DType::kBf16);   // Llama 2 7B
  Measure(device, {{1, 4096}, 64, 8, 128}, DType::kBf16);    // that of NVIDIA's published rates
  Measure(device, {{2, 4096}, 32, 8, 128}, DType::kBf16);    // Llama 3 8B
  Measure(device, {{16, 1024}, 12, 12, 64}, DType::kBf16);   // GPT-2 124M
  Measure(device, {{1, 16384}, 32, 32, 128}, DType::kBf16);  // long
  return 0;
}

}  // namespace
}  // namespace trimtab

int main() { return trimtab::Run(); }
