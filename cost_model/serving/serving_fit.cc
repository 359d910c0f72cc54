#include "cost_model/serving/serving_fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "cost_model/cholesky.h"
#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"

namespace trimtab {
namespace {

struct RateNumber {
  const char* key;
  double ServingRates::*member;
  bool fitted;
};
constexpr RateNumber kNumbers[] = {{"weight_bytes", &ServingRates::weight_bytes, false},
                                   {"kv_bytes", &ServingRates::kv_bytes, false},
                                   {"weight_rate", &ServingRates::weight_rate, false},
                                   {"low_rate", &ServingRates::low_rate, true},
                                   {"kv_rate", &ServingRates::kv_rate, true},
                                   {"other_rate", &ServingRates::other_rate, true},
                                   {"expert_rate", &ServingRates::expert_rate, true},
                                   {"popularity", &ServingRates::popularity, false},
                                   {"rate_16", &ServingRates::rate_16, false},
                                   {"rate_low", &ServingRates::rate_low, true},
                                   {"unpack_rate", &ServingRates::unpack_rate, true},
                                   {"expert_flops", &ServingRates::expert_flops, true},
                                   {"attention_flops", &ServingRates::attention_flops, true},
                                   {"link_rate", &ServingRates::link_rate, true},
                                   {"message_s", &ServingRates::message_s, true},
                                   {"gap_s", &ServingRates::gap_s, true},
                                   {"expert_layer_s", &ServingRates::expert_layer_s, true},
                                   {"quantise_s", &ServingRates::quantise_s, false},
                                   {"host_s", &ServingRates::host_s, true},
                                   {"sequence_s", &ServingRates::sequence_s, true},
                                   {"prompt_layer_s", &ServingRates::prompt_layer_s, false}};

constexpr double kPriorSpread = 2;   // of a logarithm: known to a factor of seven
constexpr double kRowsSpread = 0.2;  // likewise, of what kernels differ by rows
constexpr double kMeasuredSpread = 0.03;
constexpr int kMostSteps = 50;
constexpr double kNudge = 1e-4;

using Vector = std::vector<double>;

struct FittedRate {
  std::function<double&(ServingRates& rates)> of;
  double spread;
};

class Fitter {
 public:
  Fitter(const ServingSteps& steps, const std::vector<MeasuredStep>& measured,
         const ServingRates& start)
      : measured_(measured), start_(start) {
    for (const MeasuredStep& each : measured) works_.push_back(steps.WorkOf(each.rows));
    for (const RateNumber& each : kNumbers) {
      if (!each.fitted || start.*each.member <= 0) continue;
      fitted_.push_back(
          {[each](ServingRates& rates) -> double& { return rates.*each.member; }, kPriorSpread});
    }
    for (size_t i = 0; i < start.by_rows.size(); ++i) {
      fitted_.push_back(
          {[i](ServingRates& rates) -> double& { return rates.by_rows[i]; }, kRowsSpread});
    }
  }

  ServingRatesFit Fit() const {
    Vector logs(fitted_.size());
    double loss = Loss(Residuals(logs), logs);
    double damping = 1e-2;
    for (int i = 0; i < kMostSteps; ++i) {
      Vector next = logs;
      const Vector step = Step(logs, damping);
      for (size_t j = 0; j < next.size(); ++j) next[j] -= step[j];
      const double next_loss = Loss(Residuals(next), next);
      if (next_loss > loss) {
        damping *= 10;
        continue;
      }
      const bool done = loss - next_loss < 1e-9 * loss;
      logs = std::move(next);
      loss = next_loss;
      damping /= 10;
      if (done) break;
    }
    ServingRatesFit fit = {.rates = RatesAt(logs)};
    for (const double residual : Residuals(logs)) {
      fit.error += std::abs(std::exp(residual) - 1) / static_cast<double>(works_.size());
    }
    return fit;
  }

 private:
  ServingRates RatesAt(const Vector& logs) const {
    ServingRates rates = start_;
    for (size_t i = 0; i < fitted_.size(); ++i) fitted_[i].of(rates) *= std::exp(logs[i]);
    return rates;
  }

  /// Logarithms of predicted / measured.
  Vector Residuals(const Vector& logs) const {
    const ServingPricer pricer(RatesAt(logs));
    Vector residuals;
    for (size_t i = 0; i < works_.size(); ++i) {
      residuals.push_back(std::log(pricer.Price(works_[i]).seconds() / measured_[i].seconds));
    }
    return residuals;
  }

  double Loss(const Vector& residuals, const Vector& logs) const {
    double loss = 0;
    for (const double each : residuals) loss += each * each / (kMeasuredSpread * kMeasuredSpread);
    for (size_t i = 0; i < logs.size(); ++i) {
      loss += logs[i] * logs[i] / (fitted_[i].spread * fitted_[i].spread);
    }
    return loss;
  }

  /// What is to be taken off the logarithms.
  Vector Step(const Vector& logs, double damping) const {
    const Vector residuals = Residuals(logs);
    const size_t n = logs.size();
    std::vector<Vector> jacobian;  // by number
    for (size_t i = 0; i < n; ++i) {
      Vector nudged = logs;
      nudged[i] += kNudge;
      Vector column = Residuals(nudged);
      for (size_t k = 0; k < column.size(); ++k) column[k] = (column[k] - residuals[k]) / kNudge;
      jacobian.push_back(std::move(column));
    }
    const double weight = 1 / (kMeasuredSpread * kMeasuredSpread);
    std::vector<Vector> curvature(n, Vector(n));
    Vector gradient(n);
    for (size_t i = 0; i < n; ++i) {
      const double prior = 1 / (fitted_[i].spread * fitted_[i].spread);
      gradient[i] = prior * logs[i];
      for (size_t k = 0; k < residuals.size(); ++k) {
        gradient[i] += weight * jacobian[i][k] * residuals[k];
      }
      for (size_t j = i; j < n; ++j) {
        for (size_t k = 0; k < residuals.size(); ++k) {
          curvature[i][j] += weight * jacobian[i][k] * jacobian[j][k];
        }
      }
      curvature[i][i] = (curvature[i][i] + prior) * (1 + damping);
    }
    return Cholesky(std::move(curvature)).Solve(std::move(gradient));
  }

  const std::vector<MeasuredStep>& measured_;
  ServingRates start_;
  std::vector<ServingWork> works_;
  std::vector<FittedRate> fitted_;
};

}  // namespace

ServingRatesFit FitServingRates(const ServingSteps& steps,
                                const std::vector<MeasuredStep>& measured,
                                const ServingRates& start) {
  return Fitter(steps, measured, start).Fit();
}

ServingRates ServingRatesFromJson(const nlohmann::json& json, const std::string& where) {
  ServingRates rates;
  StrictObject object(json, where);
  for (const RateNumber& each : kNumbers) {
    object.Number(each.key, rates.*each.member, 0, 1e30, Need::kRequired);
  }
  object.Boolean("multiplies_fp4", rates.multiplies_fp4);
  object.Boolean("launches_each_op", rates.launches_each_op);
  const nlohmann::json* by_rows = object.Find("by_rows", Need::kRequired);
  const bool knots = by_rows->is_array() && by_rows->size() == kRowKnots.size();
  const auto positive = [](const nlohmann::json& each) {
    return each.is_number() && each.get<double>() > 0;
  };
  if (!by_rows->is_array() || !(by_rows->empty() || knots) ||
      !std::all_of(by_rows->begin(), by_rows->end(), positive)) {
    object.Refuse("by_rows", fmt::format("none or {} positive numbers", kRowKnots.size()));
  }
  rates.by_rows = by_rows->get<std::vector<double>>();
  object.Finish();
  return rates;
}

nlohmann::json ToJson(const ServingRates& rates) {
  nlohmann::json json = {{"multiplies_fp4", rates.multiplies_fp4},
                         {"launches_each_op", rates.launches_each_op},
                         {"by_rows", rates.by_rows}};
  for (const RateNumber& each : kNumbers) json[each.key] = rates.*each.member;
  return json;
}

}  // namespace trimtab
