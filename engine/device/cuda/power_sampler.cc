#include "engine/device/cuda/power_sampler.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kInterval{100};

// NVML API reference, "Device Queries": the values of its enumerations.
constexpr int kSuccess = 0;
constexpr int kClockSm = 1;
constexpr int kTemperatureGpu = 0;

struct RunningRange {
  double sum = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  int64_t count = 0;

  void Add(double value) {
    sum += value;
    min = std::min(min, value);
    max = std::max(max, value);
    ++count;
  }
  PowerReading::Range Get() const {
    return count == 0 ? PowerReading::Range{}
                      : PowerReading::Range{sum / static_cast<double>(count), min, max};
  }
};

}  // namespace

/// The library, and the GPU in it.
struct PowerSampler::Nvml {
  using Device = void*;

  ~Nvml() {
    if (initialised) shutdown();
    if (library != nullptr) dlclose(library);
  }

  template <typename Function>
  bool Find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) reason = fmt::format("NVML has no {}", name);
    return function != nullptr;
  }

  /// False with `reason` when something is missing.
  bool Open(const std::string& pci_bus_id, const std::string& path) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      reason = fmt::format("no NVML: {}", dlerror());
      return false;
    }
    const bool complete = Find("nvmlInit_v2", init) && Find("nvmlShutdown", shutdown) &&
                          Find("nvmlErrorString", error_string) &&
                          Find("nvmlDeviceGetHandleByPciBusId_v2", by_pci_bus_id) &&
                          Find("nvmlDeviceGetPowerUsage", power) &&
                          Find("nvmlDeviceGetClockInfo", clock) &&
                          Find("nvmlDeviceGetTemperature", temperature) &&
                          Find("nvmlDeviceGetTotalEnergyConsumption", energy);
    if (!complete) return false;
    initialised = Succeeded(init(), "nvmlInit_v2");
    return initialised && Succeeded(by_pci_bus_id(pci_bus_id.c_str(), &device),
                                    "nvmlDeviceGetHandleByPciBusId_v2");
  }

  bool Succeeded(int status, const char* call) {
    if (status != kSuccess) reason = fmt::format("{}: {}", call, error_string(status));
    return status == kSuccess;
  }

  /// Of the GPU since its driver was loaded; negative where it does not count.
  double Joules() const {
    unsigned long long millijoules = 0;  // NOLINT: NVML's own type
    return energy(device, &millijoules) == kSuccess ? static_cast<double>(millijoules) / 1e3 : -1;
  }

  void* library = nullptr;
  bool initialised = false;
  Device device = nullptr;
  std::string reason;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*by_pci_bus_id)(const char*, Device*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;             // milliwatts
  int (*clock)(Device, int, unsigned*) = nullptr;        // MHz
  int (*temperature)(Device, int, unsigned*) = nullptr;  // degrees Celsius
  int (*energy)(Device, unsigned long long*) = nullptr;  // millijoules
};

struct PowerSampler::Sums {
  RunningRange power_w;
  RunningRange sm_clock_mhz;
  RunningRange temperature_c;
  Clock::time_point start = Clock::now();
  double start_j = 0;
};

std::string PowerReading::ToString() const {
  return fmt::format("{:.0f} W ({:.0f}-{:.0f}), {:.0f} MHz ({:.0f}-{:.0f}), {:.0f} C, {:.0f} J",
                     power_w.mean, power_w.min, power_w.max, sm_clock_mhz.mean, sm_clock_mhz.min,
                     sm_clock_mhz.max, temperature_c.max, energy_j);
}

PowerSampler::Opened PowerSampler::Open(const std::string& pci_bus_id, const std::string& library) {
  auto nvml = std::make_unique<Nvml>();
  if (!nvml->Open(pci_bus_id, library)) return {.reason = nvml->reason};
  return {.sampler = std::unique_ptr<PowerSampler>(new PowerSampler(std::move(nvml)))};
}

PowerSampler::PowerSampler(std::unique_ptr<Nvml> nvml) : nvml_(std::move(nvml)) {}

PowerSampler::~PowerSampler() {
  if (thread_.joinable()) Stop();
}

void PowerSampler::Start() {
  TRIMTAB_ASSERT(!thread_.joinable(), "power is sampled already, since {} samples",
                 sums_->power_w.count);
  sums_ = std::make_unique<Sums>();
  sums_->start_j = nvml_->Joules();
  {
    const MutexLock lock(mutex_);
    stop_ = false;
  }
  Sample();
  thread_ = std::thread([this] { Loop(); });
}

void PowerSampler::Loop() {
  MutexLock lock(mutex_);
  const auto stops = [this]() TRIMTAB_REQUIRES(mutex_) { return stop_; };
  while (!lock.WaitFor(stopped_, kInterval, stops)) Sample();
}

/// A value that cannot be read is left out.
void PowerSampler::Sample() {
  unsigned value = 0;
  if (nvml_->power(nvml_->device, &value) == kSuccess) sums_->power_w.Add(value / 1e3);
  if (nvml_->clock(nvml_->device, kClockSm, &value) == kSuccess) sums_->sm_clock_mhz.Add(value);
  if (nvml_->temperature(nvml_->device, kTemperatureGpu, &value) == kSuccess) {
    sums_->temperature_c.Add(value);
  }
}

PowerReading PowerSampler::Stop() {
  TRIMTAB_ASSERT(thread_.joinable(), "{} without Start", "Stop");
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_one();
  thread_.join();
  Sample();
  PowerReading reading{
      .samples = sums_->power_w.count,
      .seconds = std::chrono::duration<double>(Clock::now() - sums_->start).count(),
      .power_w = sums_->power_w.Get(),
      .sm_clock_mhz = sums_->sm_clock_mhz.Get(),
      .temperature_c = sums_->temperature_c.Get()};
  const double end_j = nvml_->Joules();
  reading.energy_j = sums_->start_j >= 0 && end_j >= 0 ? end_j - sums_->start_j
                                                       : reading.power_w.mean * reading.seconds;
  return reading;
}

}  // namespace trimtab
