#include "cost_model/validation/fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "cost_model/finish.h"
#include "engine/base/error.h"
#include "engine/base/log.h"

namespace trimtab {
namespace {

constexpr int kFolds = 5;
constexpr int kFits = 2;  // of all rows, each with derivatives at where it starts

/// Which fold a family is in: the same everywhere, and none that its name says anything about.
int FoldOf(const std::string& family) {
  uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : family) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return static_cast<int>((hash >> 8) % kFolds);
}

/// The group that a row is held out with.
using GroupOfRow = std::function<std::string(size_t)>;

/// Fits once without each group of rows, from `start`, and predicts those: their errors, by row.
std::vector<double> ErrorsHeldOut(ConstantFitter& fitter, const GroupOfRow& group_of,
                                  const Logs& start, const std::vector<Derivatives>& jacobian,
                                  const std::set<size_t>& fixed = {}) {
  std::map<std::string, std::vector<size_t>> groups;
  for (size_t row = 0; row < fitter.rows(); ++row) groups[group_of(row)].push_back(row);
  std::vector<double> errors(fitter.rows(), 0);
  for (const auto& [name, held_out] : groups) {
    std::vector<size_t> fitted;
    for (size_t row = 0; row < fitter.rows(); ++row) {
      if (group_of(row) != name) fitted.push_back(row);
    }
    std::vector<Derivatives> copy = jacobian;
    const Logs from = fitter.ForgetUnless(fitted, start, fixed);
    const Logs logs = fitter.Fit(fitted, from, fixed, copy);
    for (const size_t row : held_out) errors[row] = std::expm1(fitter.Residual(row, logs));
  }
  return errors;
}

}  // namespace

FitResult FitPublishedRuns(const std::vector<ValidationRow>& rows, RunPredictor& predictor,
                           Outcome outcome, bool worths) {
  ConstantFitter fitter(rows, predictor, outcome);
  FitResult result;
  result.constants = fitter.constants();
  std::vector<size_t> all;
  for (size_t row = 0; row < rows.size(); ++row) all.push_back(row);
  for (const FitConstant& constant : result.constants) {
    result.logs.push_back(std::clamp(0.0, constant.least, constant.most));
  }
  std::vector<Derivatives> jacobian = fitter.DerivativesAt(result.logs);
  for (int fit = 0; fit < kFits; ++fit) {
    result.logs = fitter.Fit(all, result.logs, {}, jacobian);
    jacobian = fitter.DerivativesAt(result.logs);
  }
  LogInfo("fitted {} constants to {} rows", result.constants.size(), rows.size());
  for (const size_t row : all) {
    result.errors.push_back(std::expm1(fitter.Residual(row, result.logs)));
    const Breakdown parts = predictor.Predict(rows[row]).breakdown_s;
    result.known_half_widths.push_back(GpuHalfWidth(rows[row].of.run, parts, Evidence::kFitted));
    result.other_half_widths.push_back(GpuHalfWidth(rows[row].of.run, parts, Evidence::kPartly));
  }
  result.sds = fitter.Spreads(all, result.logs, jacobian);

  const auto hold_out = [&](const char* what, const GroupOfRow& group_of) {
    std::vector<double> errors = ErrorsHeldOut(fitter, group_of, result.logs, jacobian);
    LogInfo("held out each {}", what);
    return errors;
  };
  const auto fold = [&](size_t row) { return std::to_string(FoldOf(rows[row].published.family)); };
  result.held_out = {
      hold_out("fifth of the families", fold),
      hold_out("source", [&](size_t row) { return rows[row].published.source; }),
      hold_out("kind of GPU", [&](size_t row) { return rows[row].published.hardware.gpu; })};
  if (!worths) return result;
  for (const ConstantKind& kind : ConstantKinds()) {
    std::set<size_t> fixed;
    Logs without = result.logs;
    for (size_t i = 0; i < result.constants.size(); ++i) {
      const FitConstant& constant = result.constants[i];
      if (constant.kind != &kind) continue;
      fixed.insert(i);
      without[i] = kind.neutral > 0 ? std::log(kind.neutral / constant.shipped) : constant.prior;
    }
    if (fixed.empty()) continue;
    const std::string name = (kind.of_stack ? "stack " : "machine ") + kind.name;
    result.without.emplace_back(name, ErrorsHeldOut(fitter, fold, without, jacobian, fixed));
    LogInfo("held {} fixed", name);
  }
  return result;
}

}  // namespace trimtab
