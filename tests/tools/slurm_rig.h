// A real Slurm on this machine, for as long as the object lives.
#pragma once

#include <string>

namespace trimtab {

class SlurmRig {
 public:
  /// Starts one of four virtual nodes and points this process and its children to it.
  SlurmRig();
  ~SlurmRig();
  SlurmRig(const SlurmRig&) = delete;
  SlurmRig& operator=(const SlurmRig&) = delete;

  /// Why there is none here; empty when there is.
  const std::string& why_not() const { return why_not_; }
  /// For files of tests; removed with the rig.
  const std::string& folder() const { return folder_; }
  /// This user's jobs: id, name and state of each on a line.
  static std::string Queue();
  /// Whether none is left, soon.
  static bool Emptied();
  /// Kills the controller, and starts it again `pause_s` later.
  void RestartController(double pause_s) const;

 private:
  std::string why_not_;
  std::string folder_;
};

}  // namespace trimtab
