// What launchers write into the log of what they start: what they complain of, which rank they
// lost, and what is noise.
#pragma once

#include <optional>
#include <string>

namespace trimtab {

/// Returns the first complaint in `log`, on one line: the cause, where later lines ("Try --help")
/// are consequences. Of a framed text of Open MPI's, its first paragraph. Empty if nothing is said.
std::string FirstComplaint(const std::string& log);

/// A rank whose process ended by itself, in srun's words.
struct LostRank {
  int rank = 0;
  std::string node{};
  std::string how{};  // "signal 9 (Killed)", "exit code 3"
};
/// Returns the rank that srun says was lost first: by a signal rather than by an exit code, for the
/// others fail when it is gone. nullopt where srun names none.
std::optional<LostRank> FindLostRank(const std::string& log);

/// Takes out of a stream of text what launchers and MPI say of processes that end: framed texts,
/// and lines of srun, slurmstepd and Open MPI's daemons.
class LauncherNoise {
 public:
  /// Returns the whole lines of `text`, and of what is left of the texts before, that are not
  /// noise.
  std::string Filter(const std::string& text);
  /// Returns the rest: a last line without its end.
  std::string Flush();

 private:
  std::string rest_;
  bool framed_ = false;
};

}  // namespace trimtab
