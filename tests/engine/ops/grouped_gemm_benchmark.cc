// Speed of grouped products, forward and both gradients, against one product of the same FLOPs
// measured in turn with it.
//
//   bazel run //tests/engine/ops:grouped_gemm_benchmark -- [threads] [groups] [rows] [columns]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <vector>

#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/grouped_gemm.h"

namespace trimtab {
namespace {

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Runs both in turn, so that what slows the machine slows them alike.
void Compare(const char* name, int64_t flops, const std::function<void()>& grouped,
             const std::function<void()>& whole) {
  constexpr int kRounds = 21;
  grouped();
  whole();
  std::vector<double> grouped_s;
  std::vector<double> whole_s;
  for (int i = 0; i < kRounds; ++i) {
    grouped_s.push_back(Seconds(grouped));
    whole_s.push_back(Seconds(whole));
  }
  const double rate = static_cast<double>(flops) / Median(grouped_s);
  const double limit = static_cast<double>(flops) / Median(whole_s);
  fmt::print("{:<16}{:>8.1f} GFLOP/s, one product {:>8.1f} GFLOP/s: {:>4.0f} %\n", name, rate / 1e9,
             limit / 1e9, 100 * rate / limit);
}

void Run(int threads, int64_t groups, int64_t rows, int64_t columns) {
  const auto device = MakeCpuDevice(threads);
  const auto fresh = [&device](const Shape& shape) {
    Tensor tensor = Tensor::Empty(*device, shape, DType::kF32, MemoryTag::kWorkspace);
    Fill(tensor, 0.01f);
    return tensor;
  };
  fmt::print("threads {}, {} groups of {} rows, {} columns\n", threads, groups, rows, columns);
  const int64_t all = groups * rows;
  const std::vector<int64_t> counts(static_cast<size_t>(groups), rows);
  const Tensor x = fresh({all, columns});
  const Tensor weights = fresh({groups, columns, columns});
  const Tensor weight = fresh({columns, columns});
  Tensor y = fresh({all, columns});
  Tensor dweights = fresh({groups, columns, columns});
  Tensor dweight = fresh({columns, columns});
  const int64_t flops = 2 * all * columns * columns;
  Compare(
      "forward", flops, [&] { GroupedGemm(x, weights, Transpose::kYes, counts, y); },
      [&] { Gemm(x, Transpose::kNo, weight, Transpose::kYes, y); });
  Compare(
      "input gradient", flops, [&] { GroupedGemm(x, weights, Transpose::kNo, counts, y); },
      [&] { Gemm(x, Transpose::kNo, weight, Transpose::kNo, y); });
  Compare(
      "weight gradient", flops,
      [&] { GroupedGemmWeights(x, y, counts, dweights, {.accumulate = true}); },
      [&] { Gemm(x, Transpose::kYes, y, Transpose::kNo, dweight, {.accumulate = true}); });
}

}  // namespace
}  // namespace trimtab

int main(int argc, char** argv) {
  const auto argument = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  trimtab::Run(argument(1, 2), argument(2, 8), argument(3, 512), argument(4, 1024));
}
