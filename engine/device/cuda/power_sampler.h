// Power, clocks and temperature of a GPU while something is measured on it: a figure without them
// cannot be compared with another. By NVML, which comes with the driver and is loaded on first use;
// the few functions needed are declared here, so no header of it is.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "engine/base/mutex.h"

namespace trimtab {

/// Over one interval of sampling.
struct PowerReading {
  struct Range {
    double mean = 0;
    double min = 0;
    double max = 0;
  };
  int64_t samples = 0;
  double seconds = 0;
  Range power_w{};
  Range sm_clock_mhz{};
  Range temperature_c{};
  /// By the GPU's own counter; where it has none, mean power times seconds.
  double energy_j = 0;

  /// "512 W (498-530), 1755 MHz (1740-1770), 61 C, 5120 J"
  std::string ToString() const;
};

class PowerSampler {
 public:
  struct Opened {
    std::unique_ptr<PowerSampler> sampler{};  // null when there is none: see reason
    std::string reason{};                     // in one line
  };
  /// `pci_bus_id` as the CUDA runtime writes it ("0000:3b:00.0"): NVML counts GPUs by itself.
  static Opened Open(const std::string& pci_bus_id,
                     const std::string& library = "libnvidia-ml.so.1");

  ~PowerSampler();
  PowerSampler(const PowerSampler&) = delete;
  PowerSampler& operator=(const PowerSampler&) = delete;

  /// Samples now and every 100 ms from now on, on a thread of its own.
  void Start();
  /// Samples once more and gives what was seen since Start.
  PowerReading Stop();

 private:
  struct Nvml;
  struct Sums;

  explicit PowerSampler(std::unique_ptr<Nvml> nvml);
  void Loop();
  void Sample();

  std::unique_ptr<Nvml> nvml_;
  std::unique_ptr<Sums> sums_;
  std::thread thread_;
  Mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ TRIMTAB_GUARDED_BY(mutex_) = false;
};

}  // namespace trimtab
