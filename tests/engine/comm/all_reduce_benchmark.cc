// Bandwidth of the in-process all-reduce beside that of memcpy in the same run.
//
//   bazel run //tests/engine/comm:all_reduce_benchmark -- [ranks] [MiB] [repeats]
//
// The figure is buffer bytes / time (what nccl-tests call algorithm bandwidth), median over the
// repeats of the slowest rank's time. The yardstick is every rank copying one buffer to another at
// the same time: bytes of one buffer / time.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "engine/base/units.h"
#include "engine/comm/parallel_context.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

/// Times of `work` on rank 0, between barriers, so of the slowest rank.
std::vector<double> Time(Communicator& comm, int repeats, const std::function<void()>& work) {
  std::vector<double> times;
  for (int i = 0; i < repeats + 2; ++i) {
    comm.Barrier();
    const Clock::time_point start = Clock::now();
    work();
    comm.Barrier();
    if (i >= 2) times.push_back(Seconds(start));  // the first two warm up
  }
  std::sort(times.begin(), times.end());
  return times;
}

void Print(const char* what, const std::vector<double>& times, int64_t bytes) {
  const auto rate = [bytes](double time) { return static_cast<double>(bytes) * 1e-9 / time; };
  fmt::print("{:<12}{:>10.3f} GB/s median, {:.3f} best, {:.3f} worst; {:.1f} us\n", what,
             rate(times[times.size() / 2]), rate(times.front()), rate(times.back()),
             times[times.size() / 2] * 1e6);
}

void Run(int ranks, int64_t bytes, int repeats) {
  RunInprocRanks({.dp = ranks}, [&](ParallelContext& context) {
    const auto device = MakeCpuDevice(1);
    const auto make = [&] {
      Tensor tensor = Tensor::Empty(*device, {bytes / 4}, DType::kF32, MemoryTag::kCommunication);
      std::memset(tensor.raw(), 0, static_cast<size_t>(bytes));
      return tensor;
    };
    Tensor buffer = make();
    Tensor copy = make();
    Communicator& comm = *context.world;
    const auto reduced = Time(comm, repeats, [&] { comm.AllReduce(buffer); });
    const auto copied = Time(
        comm, repeats, [&] { std::memcpy(copy.raw(), buffer.raw(), static_cast<size_t>(bytes)); });
    if (context.rank != 0) return;
    fmt::print("{} ranks, {}, {} repeats\n", ranks, FormatBytes(bytes), repeats);
    Print("all-reduce", reduced, bytes);
    Print("memcpy", copied, bytes);
  });
}

}  // namespace
}  // namespace trimtab

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const double mib = argc > 2 ? std::atof(argv[2]) : 64;
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 51;
  if (ranks < 1 || mib <= 0 || repeats < 1) {
    fmt::print(stderr, "usage: all_reduce_benchmark [ranks] [MiB] [repeats]\n");
    return 2;
  }
  trimtab::Run(ranks, static_cast<int64_t>(mib * 1048576.0), repeats);
  return 0;
}
