#include "tests/engine/comm/rank_threads.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>

#include "engine/base/float16.h"
#include "engine/comm/cuda/emulated_comm.h"
#include "engine/comm/mpi/mpi_communicator.h"
#include "engine/comm/mpi/mpi_context.h"
#include "engine/comm/mpi_launch.h"
#include "engine/device/cuda/loader.h"
#include "engine/ops/cuda/emulated_ops.h"

namespace trimtab {
namespace {

constexpr int64_t kGuardElements = 64;
constexpr unsigned char kGuardByte = 0xa5;

double GetElement(const void* data, DType dtype, size_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[i];
    case DType::kBf16:
      return Bf16ToFloat(static_cast<const uint16_t*>(data)[i]);
    case DType::kF16:
      return F16ToFloat(static_cast<const uint16_t*>(data)[i]);
    case DType::kI32:
      return static_cast<const int32_t*>(data)[i];
    case DType::kI64:
      return static_cast<double>(static_cast<const int64_t*>(data)[i]);
    default:
      ADD_FAILURE() << "no number is read from " << Name(dtype);
      return 0;
  }
}

void SetElement(void* data, DType dtype, size_t i, double value) {
  const auto single = static_cast<float>(value);
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(data)[i] = single;
      return;
    case DType::kBf16:
      static_cast<uint16_t*>(data)[i] = FloatToBf16(single);
      return;
    case DType::kF16:
      static_cast<uint16_t*>(data)[i] = FloatToF16(single);
      return;
    case DType::kI32:
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
      return;
    case DType::kI64:
      static_cast<int64_t*>(data)[i] = static_cast<int64_t>(value);
      return;
    default:
      ADD_FAILURE() << "no number is written to " << Name(dtype);
  }
}

std::unique_ptr<Device> MakeRankDevice(RankKind kind) {
  switch (kind) {
    case RankKind::kCpuThreads:
    case RankKind::kCpuProcesses:
      return MakeCpuDevice(1);
    case RankKind::kCudaThreads:
    case RankKind::kCudaProcesses:
      return MakeCudaDevice(0);
    case RankKind::kEmulatedCudaThreads:
      break;
  }
  auto device = MakeEmulatedDevice();
  device->set_cuda_comm(&EmulatedCudaComm());
  return device;
}

/// The device and the groups of this process, made once: NCCL takes long to start. They end with
/// the process.
struct NcclRank {
  NcclRank() {
    // NCCL refuses two ranks on one GPU of one host. With names of their own it takes the processes
    // for hosts.
    MpiWorld& world = MpiWorld::OfProcess();
    setenv("NCCL_HOSTID", fmt::format("rank{}", world.rank()).c_str(), /*overwrite=*/1);
    device = MakeRankDevice(RankKind::kCudaProcesses);
    context = MakeMpiContext(world, {.pp = world.size()}, *device, /*has_experts=*/false);
  }
  static NcclRank& OfProcess() {
    static auto* rank = new NcclRank;
    return *rank;
  }

  std::unique_ptr<Device> device;
  ParallelContext context;
};

void RunBody(const std::function<void()>& body, RankEnd& end) {
  try {
    body();
  } catch (const CommError& error) {
    end = {.threw = true, .comm_error = true, .what = error.what()};
  } catch (const std::exception& error) {
    end = {.threw = true, .comm_error = false, .what = error.what()};
  }
}

}  // namespace

std::string Name(RankKind kind) {
  switch (kind) {
    case RankKind::kCpuThreads:
      return "threads";
    case RankKind::kEmulatedCudaThreads:
      return "emulated_cuda_threads";
    case RankKind::kCudaThreads:
      return "cuda_threads";
    case RankKind::kCpuProcesses:
      return "processes";
    case RankKind::kCudaProcesses:
      return "cuda_processes";
  }
  return "";
}

std::string WhyNot(RankKind kind, int size) {
  switch (kind) {
    case RankKind::kCpuThreads:
    case RankKind::kEmulatedCudaThreads:
      return "";
    case RankKind::kCudaThreads:
      return FindCudaDevices().reason;
    case RankKind::kCpuProcesses:
    case RankKind::kCudaProcesses:
      break;
  }
  const auto launch = FindMpiLaunch();
  if (!launch) return "neither mpirun nor srun started this process";
  if (kind == RankKind::kCudaProcesses) {
    if (FindCudaDevices().device_count == 0) return FindCudaDevices().reason;
    if (launch->size != size) return fmt::format("mpirun started {} processes", launch->size);
  }
  return launch->size < size ? fmt::format("mpirun started {} processes", launch->size) : "";
}

std::vector<RankEnd> RunRanks(RankKind kind, int size, const RankBody& body) {
  const Watchdog watchdog("a group of ranks");
  std::vector<RankEnd> ends(static_cast<size_t>(size));
  if (kind == RankKind::kCpuProcesses) {
    MpiWorld& world = MpiWorld::OfProcess();
    if (world.rank() >= size) return ends;
    std::vector<int> members(static_cast<size_t>(size));
    std::iota(members.begin(), members.end(), 0);
    RunBody(
        [&] {
          const auto comm = MakeMpiCommunicator(world, GroupKind::kWorld, members);
          body(*comm, *MakeRankDevice(kind));
        },
        ends[static_cast<size_t>(world.rank())]);
    return ends;
  }
  if (kind == RankKind::kCudaProcesses) {
    NcclRank& rank = NcclRank::OfProcess();
    RunBody([&] { body(*rank.context.pp, *rank.device); },
            ends[static_cast<size_t>(rank.context.rank)]);
    return ends;
  }
  std::vector<std::thread> threads;
  auto group = MakeInprocGroup(GroupKind::kWorld, size);
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    threads.emplace_back([&, rank, comm = std::move(group[rank])]() mutable {
      RunBody([&] { body(*comm, *MakeRankDevice(kind)); }, ends[rank]);
      comm.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

void RunRanksCleanly(RankKind kind, int size, const RankBody& body) {
  for (const RankEnd& end : RunRanks(kind, size, body)) EXPECT_FALSE(end.threw) << end.what;
}

GuardedTensor::GuardedTensor(Device& device, int64_t count, DType dtype)
    : whole_(Tensor::Empty(device, {count + 2 * kGuardElements}, dtype, MemoryTag::kCommunication)),
      tensor_(whole_.Slice(kGuardElements, {count})) {
  const std::vector<unsigned char> bytes(static_cast<size_t>(whole_.bytes()), kGuardByte);
  device.CopyFromHost(whole_.raw(), bytes.data(), whole_.bytes());
}

bool GuardedTensor::Intact() const {
  std::vector<unsigned char> bytes(static_cast<size_t>(whole_.bytes()));
  whole_.device().CopyToHost(bytes.data(), whole_.raw(), whole_.bytes());
  const auto guard = static_cast<size_t>(kGuardElements * SizeOf(whole_.dtype()));
  for (size_t i = 0; i < guard; ++i) {
    if (bytes[i] != kGuardByte || bytes[bytes.size() - 1 - i] != kGuardByte) return false;
  }
  return true;
}

std::vector<double> Load(const Tensor& tensor) {
  std::vector<char> bytes(static_cast<size_t>(tensor.bytes()));
  if (!bytes.empty()) tensor.device().CopyToHost(bytes.data(), tensor.raw(), tensor.bytes());
  std::vector<double> values(static_cast<size_t>(tensor.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = GetElement(bytes.data(), tensor.dtype(), i);
  return values;
}

void Store(Tensor& tensor, const std::vector<double>& values) {
  TRIMTAB_ASSERT(static_cast<int64_t>(values.size()) == tensor.numel(), "{} values", values.size());
  std::vector<char> bytes(static_cast<size_t>(tensor.bytes()));
  for (size_t i = 0; i < values.size(); ++i) {
    SetElement(bytes.data(), tensor.dtype(), i, values[i]);
  }
  if (!bytes.empty()) tensor.device().CopyFromHost(tensor.raw(), bytes.data(), tensor.bytes());
}

void Fill(Tensor& tensor, const std::function<double(int64_t i)>& value) {
  std::vector<double> values(static_cast<size_t>(tensor.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = value(static_cast<int64_t>(i));
  Store(tensor, values);
}

double Get(const Tensor& tensor, int64_t i) {
  return GetElement(tensor.raw(), tensor.dtype(), static_cast<size_t>(i));
}

void Set(Tensor& tensor, int64_t i, double value) {
  SetElement(tensor.raw(), tensor.dtype(), static_cast<size_t>(i), value);
}

}  // namespace trimtab
