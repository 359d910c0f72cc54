// Study file: what is at the path of a study before anyone opens it as one.
#pragma once

#include <string>

namespace trimtab {

inline constexpr int kStudyApplicationId = 0x54524D54;  // "TRMT", of a search for training
// Of a search for serving, by its user_version, so that neither kind is taken for the other.

/// Throws StorageError where something is at `path` that is no file, and without `resume` also for
/// a file that is no study; UsageError where it is one. An empty file is as good as none, and so is
/// an empty study.
void RequireNewOrResumed(const std::string& path, bool resume);

/// Whether nothing is at `path`, or an empty file: then a study made there is new.
bool HoldsNoStudy(const std::string& path);

/// Returns true if the search for training that made the study at `path` ended, killed perhaps,
/// before it had stored a candidate: there is nothing to go on with. Rolls back what its last
/// transaction left. False for a study that another process writes.
bool IsEmptyStudy(const std::string& path);

/// Removes an empty study and what its search left beside it: nothing where IsEmptyStudy is false.
void RemoveEmptyStudy(const std::string& path);

}  // namespace trimtab
