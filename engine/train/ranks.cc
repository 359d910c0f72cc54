#include "engine/train/ranks.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/comm/mpi_launch.h"
#include "engine/device/cuda/loader.h"
#include "engine/device/tensor.h"
#include "engine/train/trainer.h"

namespace trimtab {
namespace {

/// The device of the rank that is number `index` on this machine.
std::unique_ptr<Device> MakeRankDevice(const RunConfig& run, int index) {
  if (run.device == "cpu") return MakeCpuDevice(ThreadsPerRank(run));
  if (run.device != "cuda") {
    throw EnvironmentError(
        fmt::format("cannot run on device \"{}\"; expected \"cpu\" or \"cuda\"", run.device));
  }
  const int gpus = std::max(1, FindCudaDevices().device_count);
  return MakeCudaDevice(index % gpus, run.deterministic);
}

}  // namespace

Rank::Rank(const RunConfig& run, ParallelContext& parallel, Device& device, bool in_process)
    : parallel_(parallel), device_(device), in_process_(in_process), host_(MakeCpuDevice(1)) {
  device_.memory().set_limit_bytes(run.memory_per_rank_bytes);
}

int64_t Rank::FromFirst(int64_t value) {
  Tensor tensor = Tensor::Empty(*host_, {1}, DType::kI64, MemoryTag::kCommunication);
  auto* data = static_cast<int64_t*>(tensor.raw());
  *data = value;
  parallel_.host->Broadcast(tensor, 0);
  return *data;
}

std::vector<int64_t> Rank::Gather(std::span<const int64_t> values) {
  const auto count = static_cast<int64_t>(values.size());
  const int64_t ranks = parallel_.host->size();
  Tensor mine = Tensor::Empty(*host_, {count}, DType::kI64, MemoryTag::kCommunication);
  Tensor all = Tensor::Empty(*host_, {count * ranks}, DType::kI64, MemoryTag::kCommunication);
  std::copy(values.begin(), values.end(), static_cast<int64_t*>(mine.raw()));
  parallel_.host->AllGather(mine, all);
  const auto* data = static_cast<const int64_t*>(all.raw());
  return {data, data + all.numel()};
}

void RunRanks(const RunConfig& run, const std::function<void(Rank& rank)>& body) {
  RunInprocRanks(run.layout, [&](ParallelContext& context) {
    const std::unique_ptr<Device> device = MakeRankDevice(run, context.rank);
    Rank rank(run, context, *device, /*in_process=*/true);
    body(rank);
  });
}

}  // namespace trimtab
