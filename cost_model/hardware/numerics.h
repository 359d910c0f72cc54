// Precision and optimizer state under the names that people use, and what they mean.
//
//   optimizer state  master      moments  gradients  bytes a parameter with 16-bit weights
//   full             fp32        fp32     fp32       18
//   reduced          remainder   bf16     fp32       12
//   minimal          remainder   bf16     bf16       10
//
// A preset goes as far as the precision takes it: only bf16 weights have remainders and bf16
// gradients, and fp32 ones are their own master. Any other combination is written
// MASTER/MOMENTS/GRADS: remainder/fp16/bf16.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cost_model/hardware/hardware_profile.h"
#include "engine/config/layout/parallel_config.h"
#include "engine/config/run/optimizer_config.h"

namespace trimtab {

/// "full", "reduced", "minimal".
std::vector<std::string> OptimizerStatePresets();

/// Sets master, moments and gradients of numerics whose precision is set to the state called
/// `name`: a preset, or MASTER/MOMENTS/GRADS as it stands, legal or not. Throws UsageError.
void SetOptimizerState(const std::string& name, Numerics& numerics);

/// The state of `numerics` by name: a preset's where one is the same, else MASTER/MOMENTS/GRADS.
std::string OptimizerStateName(const Numerics& numerics);

/// Names of every legal state under `precision`: the presets first, then all others.
std::vector<std::string> EveryOptimizerState(Precision precision);

/// Returns the bytes kept of each parameter between steps, all ranks together without replicas:
/// weight, master, moments (with the scales of fp16 and int8 ones; AdamW has two, other optimizers
/// one momentum) and gradient. Bytes, of a trained matrix of a layer.
double BytesPerParameter(const Numerics& numerics, OptimizerKind optimizer = OptimizerKind::kAdamW);

/// The five precisions, in the order of the table in engine/config/layout/precision.h.
std::span<const Precision> Precisions();
/// The precision called `name`. Throws UsageError.
Precision ParsePrecision(const std::string& name);
/// A line each: what is stored and multiplied in what.
std::string DescribePrecision(Precision precision);
std::string DescribeOptimizerState(const Numerics& numerics,
                                   OptimizerKind optimizer = OptimizerKind::kAdamW);

/// Why `precision` cannot be priced on `profile`: it lacks the rate of its products. Empty when it
/// can.
std::string Unpriceable(const HardwareProfile& profile, Precision precision);

/// The precisions worth trying on `profile` when nobody says which. A cpu multiplies nothing faster
/// in fewer bits: fp32. A GPU: bf16 and fp8, as far as it has them; one without both: fp16.
std::vector<Precision> SensiblePrecisions(const HardwareProfile& profile);

/// The precisions called `names`, with "auto" replaced by SensiblePrecisions; each once, in the
/// order given. Throws UsageError for an unknown name, or one that the profile cannot price.
std::vector<Precision> ResolvePrecisions(const std::vector<std::string>& names,
                                         const HardwareProfile& profile);

/// `names` checked, each once; "auto" stays, for what it stands for depends on the precision.
/// Throws UsageError.
std::vector<std::string> ResolveOptimizerStates(const std::vector<std::string>& names);

}  // namespace trimtab
