#include "engine/runtime/ranks.h"

#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <new>

#include "engine/base/error.h"
#include "engine/comm/mpi/mpi_context.h"
#include "engine/comm/mpi_launch.h"
#include "engine/config/rules/rules.h"
#include "engine/device/cuda/loader.h"
#include "engine/device/tensor.h"
#include "engine/runtime/context.h"

namespace trimtab {
namespace {

/// The device of the rank that is number `index` on this machine.
std::unique_ptr<Device> MakeRankDevice(const RunConfig& run, int index) {
  if (run.device == DeviceKind::kCpu) return MakeCpuDevice(ThreadsPerRank(run));
  if (run.device != DeviceKind::kCuda) {
    throw EnvironmentError(
        fmt::format("cannot run on device \"{}\"; expected \"cpu\" or \"cuda\"", Name(run.device)));
  }
  const int gpus = std::max(1, FindCudaDevices().device_count);
  return MakeCudaDevice(index % gpus, run.deterministic);
}

/// Groups can be made of the ranks of a legal layout. Calibration lays ranks out without a model.
void RequireGroups(const RunConfig& run) {
  if (run.model != ModelConfig()) RequireLegal(run);
}

/// The failure that is being handled, as the other processes are to know it.
RunFailure DescribeFailure(int rank) {
  RunFailure failure = {.rank = rank};
  try {
    throw;
  } catch (const CommError& error) {
    failure.consequence = true;
    failure.message = error.what();
    return failure;
  } catch (const Error& error) {
    failure.code = error.code();
    failure.out_of_memory = dynamic_cast<const OutOfMemoryError*>(&error) != nullptr;
    failure.message = error.what();
  } catch (const std::bad_alloc&) {
    failure.code = ExitCode::kInfeasible;
    failure.out_of_memory = true;
    failure.message = "the machine has no more memory";
  } catch (const std::exception& error) {
    failure.message = error.what();
  } catch (...) {
    failure.message = "an unknown exception";
  }
  failure.message = fmt::format("rank {} failed: {}", rank, failure.message);
  return failure;
}

/// The rank that this process is. Its errors, and those of the others, end all processes alike.
void RunMpiRank(const RunConfig& run, int64_t replicas, const MpiLaunch& launch,
                const std::function<void(Rank& rank)>& body) {
  // Before MPI starts: a world of the wrong size is no failure of a run.
  ParallelConfig all = run.layout;
  all.dp *= replicas;
  CheckMpiWorldSize(launch.size, all, launch.launcher);
  // A rank never outlives the daemon that started it, however that ends.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  MpiWorld& world = MpiWorld::OfProcess();
  world.Start();
  try {
    RequireGroups(run);
    const std::unique_ptr<Device> device = MakeRankDevice(run, launch.local_rank);
    ParallelContext context = MakeMpiContext(world, run.layout, *device, run.model.moe.used(),
                                             run.model.kv_copies(run.layout.tp));
    try {
      Rank rank(run, context, *device, /*in_process=*/false);
      body(rank);
      world.Finish();
    } catch (...) {
      // Now, for what unwinds next may wait for the others: groups and GPU have work under way.
      world.Fail(DescribeFailure(world.rank()));
      throw;
    }
    return;
  } catch (...) {
    world.Fail(DescribeFailure(world.rank()));
  }
  const RunFailure failure = world.AgreeOnFailure();
  if (failure.out_of_memory) throw OutOfMemoryError(failure.message);
  throw Error(failure.code, failure.message);
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

int64_t Rank::AwaitFirst(const std::function<int64_t()>& value) {
  const auto set_unlimited = [this](bool unlimited) {
    if (!in_process_) MpiWorld::OfProcess().set_unlimited(unlimited);
  };
  set_unlimited(true);
  const int64_t result = FromFirst(index() == 0 ? value() : 0);
  set_unlimited(false);
  return result;
}

void Rank::CheckOthers() {
  if (!in_process_) MpiWorld::OfProcess().ThrowIfTold();
}

void Rank::Max(std::span<int64_t> values) {
  Tensor tensor =
      Tensor::Empty(*host_, {std::ssize(values)}, DType::kI64, MemoryTag::kCommunication);
  auto* data = static_cast<int64_t*>(tensor.raw());
  std::copy(values.begin(), values.end(), data);
  parallel_.host->AllReduce(tensor, ReduceOp::kMax);
  std::copy(data, data + values.size(), values.begin());
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

void RunRanks(const RunConfig& run, const std::function<void(Rank& rank)>& body, int64_t replicas) {
  if (const auto launch = FindMpiLaunch()) return RunMpiRank(run, replicas, *launch, body);
  TRIMTAB_ASSERT(replicas == 1, "{} replicas, and nobody has started them", replicas);
  RefuseOtherLaunchers();
  RunRanksHere(run, body);
}

void RunRanksHere(const RunConfig& run, const std::function<void(Rank& rank)>& body) {
  RequireGroups(run);
  RunInprocRanks(
      run.layout,
      [&](ParallelContext& context) {
        const std::unique_ptr<Device> device = MakeRankDevice(run, context.rank);
        Rank rank(run, context, *device, /*in_process=*/true);
        body(rank);
      },
      run.model.kv_copies(run.layout.tp));
}

}  // namespace trimtab
