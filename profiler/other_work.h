// Other work: what the rest of the machine does to the cores that a measurement runs on.
//
// The probe (probe.h) says how fast the machine is at two moments; competing programs come and go
// in between. The kernel's own accounts cover every moment: what others ran, and how long the
// threads of this process waited for a core.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trimtab {

/// Accounts of the kernel at one moment, in seconds since some moment of the past.
struct CoreAccounts {
  double wall_s = 0;
  double busy_s = 0;                 // of all cores, running anything
  double stolen_s = 0;               // of all cores, while the machine below ran something else
  double own_s = 0;                  // of all cores, running this process
  std::optional<double> waited_s{};  // threads of this process, ready to run, for a core; if known
};

/// `busy_s` and `stolen_s` from the first line of /proc/stat, whose times are in ticks of 1 /
/// `ticks_per_s` seconds; false when it is not that line (proc(5)).
bool ReadCpuLine(const std::string& line, double ticks_per_s, CoreAccounts& accounts);

/// The share of `cores` that others took from this process between two moments, 0..1: what they
/// ran, but no more than this process waited for cores while they did, since on a machine with idle
/// cores they take nothing; and what was stolen.
double ShareTaken(const CoreAccounts& before, const CoreAccounts& after, int64_t cores);

/// The share of `cores` that others would take from work on `wanted` of them: what they ran beyond
/// what the work leaves them.
double ShareInTheWay(const CoreAccounts& before, const CoreAccounts& after, int64_t cores,
                     int64_t wanted);

/// Reads the accounts of this machine. Where it keeps none, nothing is taken.
class OtherWork {
 public:
  OtherWork();
  /// ShareTaken since the last call, or since construction.
  double Share();
  /// ShareInTheWay of work on `wanted` cores since the last call of either.
  double ShareBeside(int64_t wanted);

 private:
  CoreAccounts last_;
};

/// Beyond this share a measurement is disturbed. The accounts of a quarter of a second are no
/// finer.
inline constexpr double kDisturbedShare = 0.05;

}  // namespace trimtab
