// A libnvidia-ml.so of one GPU whose readings follow from how often they were asked for.
#include <cstring>

namespace {

unsigned power_calls = 0;
unsigned clock_calls = 0;
unsigned energy_calls = 0;

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int status) { return status == 6 ? "Not Found" : "Unknown Error"; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  if (std::strcmp(id, "0000:3b:00.0") != 0) return 6;
  *device = &power_calls;
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = power_calls++ % 2 == 0 ? 400'000 : 600'000;
  return 0;
}
int nvmlDeviceGetClockInfo(void*, int kind, unsigned* mhz) {
  *mhz = kind == 1 ? 1700 + clock_calls++ : 0;
  return 0;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 61;
  return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* millijoules) {
  *millijoules = 1'000'000 + 42'000 * energy_calls++;
  return 0;
}
}
