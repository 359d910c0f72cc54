// What a published run says about its attention: over which tokens it goes, and by which kernel it
// is computed.
#pragma once

#include <optional>
#include <string>

#include "cost_model/hardware/software_stack.h"
#include "cost_model/validation/published_run.h"

namespace trimtab {

/// The tokens that attention goes over.
struct AttentionSpan {
  int64_t window = 0;  // of tokens; 0 = all before
  int64_t period = 0;  // of so many layers the last has no window; 0 = all have it
};
/// What `run.model.attention` says in words; nullopt where it is something else than softmax
/// attention over all tokens or a window of them. A window as long as the sequence is none.
std::optional<AttentionSpan> SpanOf(const PublishedRun& run);

/// Gives `stack`, of the framework of `run` and released at `release` (2024.5 = mid 2024), the
/// kernel that the framework, the notes or the attention of the row name; where none is named, the
/// one of software of its time. Says in words what that changed; empty if nothing.
std::string ApplyKernel(const PublishedRun& run, double release, SoftwareStack& stack);

}  // namespace trimtab
