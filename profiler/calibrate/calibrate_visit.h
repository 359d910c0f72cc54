// One visit to a mode: every table of it measured once, coarsely. Calibration makes many.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cost_model/hardware/hardware_profile.h"
#include "profiler/calibrate/calibrate_plan.h"
#include "profiler/drift.h"

namespace trimtab {

/// What a visit reads, by table: "gemm", "attention", "ops", "precisions", "collectives".
using Visit = std::map<std::string, Pass>;

/// Measures with the engine's own device, ops and communicators, all ranks of the mode at work at
/// once as threads.
Visit VisitMode(const Mode& mode, const CalibrationPlan& plan);

/// Fills the tables of `tables.mode` but for its step factor from seconds for each reading of a
/// visit, by table.
void FillTables(const CalibrationPlan& plan,
                const std::map<std::string, std::vector<double>>& seconds, ModeTables& tables);

}  // namespace trimtab
