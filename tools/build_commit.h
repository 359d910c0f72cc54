// The commit that a release was built from; build/stamp.bzl makes the source.
#pragma once

namespace trimtab {

/// Returns the commit, with "-dirty" where sources differ from it; empty without --config=release.
const char* BuildCommit();

}  // namespace trimtab
