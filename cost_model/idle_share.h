// What idle stages of a pipeline cost where ranks share cores: they leave theirs to the others.
#pragma once

#include "cost_model/cluster.h"
#include "engine/config/run_config.h"

namespace trimtab {

/// The share of the idle time of a pipeline's stages that a step of `run` really takes, 0 to 1.
///
/// Prices of a mode hold while all of its ranks are busy. Where these have `crowding` times as many
/// threads as there are cores, j busy stages of p do what they have to in max(j/p, 1/crowding) of
/// that time: either all cores are theirs, or each thread has one. As a pipeline of m micro batches
/// fills and drains, 1, 2, .. min(m, p) stages are busy, each number for one pass; the most of them
/// for |m - p| + 1 passes. What that takes beyond the m passes of a stage's own, against the p - 1
/// that it waits for where every rank has its cores, is the share. 1 on GPUs, and wherever there
/// are cores for all threads.
double IdleShare(const RunConfig& run, const Cluster& cluster);

}  // namespace trimtab
