#include "tests/engine/comm/rank_threads.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "engine/base/float16.h"

namespace trimtab {
namespace {

constexpr int64_t kGuardElements = 64;
constexpr unsigned char kGuardByte = 0xa5;

}  // namespace

Watchdog::Watchdog(std::string what, double limit_s)
    : thread_([this, what = std::move(what), limit_s] {
        std::unique_lock lock(mutex_);
        const auto limit = std::chrono::duration<double>(limit_s);
        if (done_changed_.wait_for(lock, limit, [this] { return done_; })) return;
        fmt::print(stderr, "watchdog: {} still runs after {} s\n", what, limit_s);
        std::_Exit(1);
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  done_changed_.notify_one();
  thread_.join();
}

std::vector<RankEnd> RunRanks(int size,
                              const std::function<void(Communicator& comm, Device& device)>& body) {
  const Watchdog watchdog("a group of ranks");
  std::vector<RankEnd> ends(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  auto group = MakeInprocGroup(GroupKind::kWorld, size);
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&body, &end = ends[static_cast<size_t>(rank)],
                          comm = std::move(group[static_cast<size_t>(rank)])]() mutable {
      const auto device = MakeCpuDevice(1);
      try {
        body(*comm, *device);
      } catch (const CommError& error) {
        end = {.threw = true, .comm_error = true, .what = error.what()};
      } catch (const std::exception& error) {
        end = {.threw = true, .comm_error = false, .what = error.what()};
      }
      comm.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

void RunRanksCleanly(int size,
                     const std::function<void(Communicator& comm, Device& device)>& body) {
  for (const RankEnd& end : RunRanks(size, body)) EXPECT_FALSE(end.threw) << end.what;
}

GuardedTensor::GuardedTensor(Device& device, int64_t count, DType dtype)
    : whole_(Tensor::Empty(device, {count + 2 * kGuardElements}, dtype, MemoryTag::kCommunication)),
      tensor_(whole_.Slice(kGuardElements, {count})) {
  std::memset(whole_.raw(), kGuardByte, static_cast<size_t>(whole_.bytes()));
}

bool GuardedTensor::Intact() const {
  const auto* bytes = static_cast<const unsigned char*>(whole_.raw());
  const int64_t guard = kGuardElements * SizeOf(whole_.dtype());
  for (int64_t i = 0; i < guard; ++i) {
    if (bytes[i] != kGuardByte || bytes[whole_.bytes() - 1 - i] != kGuardByte) return false;
  }
  return true;
}

double Get(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype()) {
    case DType::kF32:
      return static_cast<const float*>(tensor.raw())[i];
    case DType::kBf16:
      return Bf16ToFloat(static_cast<const uint16_t*>(tensor.raw())[i]);
    case DType::kF16:
      return F16ToFloat(static_cast<const uint16_t*>(tensor.raw())[i]);
    case DType::kI32:
      return static_cast<const int32_t*>(tensor.raw())[i];
    case DType::kI64:
      return static_cast<double>(static_cast<const int64_t*>(tensor.raw())[i]);
    default:
      ADD_FAILURE() << "no number is read from " << Name(tensor.dtype());
      return 0;
  }
}

void Set(Tensor& tensor, int64_t i, double value) {
  const auto single = static_cast<float>(value);
  switch (tensor.dtype()) {
    case DType::kF32:
      static_cast<float*>(tensor.raw())[i] = single;
      return;
    case DType::kBf16:
      static_cast<uint16_t*>(tensor.raw())[i] = FloatToBf16(single);
      return;
    case DType::kF16:
      static_cast<uint16_t*>(tensor.raw())[i] = FloatToF16(single);
      return;
    case DType::kI32:
      static_cast<int32_t*>(tensor.raw())[i] = static_cast<int32_t>(value);
      return;
    case DType::kI64:
      static_cast<int64_t*>(tensor.raw())[i] = static_cast<int64_t>(value);
      return;
    default:
      ADD_FAILURE() << "no number is written to " << Name(tensor.dtype());
  }
}

}  // namespace trimtab
