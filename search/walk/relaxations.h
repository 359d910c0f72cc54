// Relaxations: what would have to change for anything to fit, where nothing does.
#pragma once

#include <string>
#include <vector>

#include "search/space/predictor.h"
#include "search/space/space.h"
#include "search/walk/walkers.h"

namespace trimtab {

/// The least change of one kind that lets a layout fit.
struct Relaxation {
  std::string what;  // in words of the command line: "--seq 2048", "32 GPUs"
  Problem problem;   // changed so
  RunConfig run;     // the fastest that fits then
};

/// One for each kind of change that helps: more of a rank's memory, another number of GPUs, shorter
/// sequences, another global batch, a leaner optimizer state, a narrowing less. Each is found by
/// the walk that found nothing, over the changed problem. Numbers go in steps of two, so a change
/// between them may do too.
std::vector<Relaxation> FindRelaxations(const Problem& problem, Predictor& predictor,
                                        const Walkers& walkers);

/// "any of these would help: ...", or that none would.
std::string InWords(const std::vector<Relaxation>& relaxations);

}  // namespace trimtab
