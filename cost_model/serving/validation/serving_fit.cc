#include "cost_model/serving/validation/serving_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "cost_model/cholesky.h"
#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr double kHuberScale = 0.08;  // residuals beyond it count linearly
constexpr double kSigma = 0.05;       // what rows are off by that nothing explains
constexpr double kDifference = 0.02;  // of a number's logarithm, for derivatives
constexpr double kGroupExponent = -0.5;
constexpr double kDone = 1e-5;  // a step that betters the loss by less is the last one
constexpr int kMostSteps = 60;
constexpr int kMostAttempts = 10;
constexpr double kLargeDamping = 1e-2;  // a step that was damped so says nothing of the minimum

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

/// The logarithm of a number of one GPU or engine; or, without a quantity, of what is expected of
/// all GPUs or engines: fitted too, so that one with few rows is taken to be like the others.
struct Fitted {
  Quantity* quantity;
  const void* owner;
  double prior;
  double spread;  // of a number around the expected one, of the expected one around its prior
  double least;
  double most;
  size_t expected;  // index of the expected one; its own where it is that
};

constexpr double kExpectedSpread = 0.4;

template <typename T>
void AddNumbers(const std::vector<ServingNumber<T>>& numbers, std::vector<T>& owners,
                std::vector<Fitted>& fitted) {
  for (const ServingNumber<T>& number : numbers) {
    if (number.spread == 0) continue;
    const size_t expected = fitted.size();
    Fitted each = {.quantity = nullptr,
                   .owner = nullptr,
                   .prior = std::log(number.prior),
                   .spread = kExpectedSpread,
                   .least = std::log(number.least),
                   .most = std::log(number.most),
                   .expected = expected};
    fitted.push_back(each);
    each.spread = number.spread;
    for (T& owner : owners) {
      each.quantity = &(owner.*number.member);
      each.owner = &owner;
      fitted.push_back(each);
    }
  }
}

class Fitter {
 public:
  Fitter(const std::vector<const ServingCase*>& cases, ServingNumbers& numbers)
      : cases_(cases), numbers_(numbers) {
    AddNumbers(ServingGpuNumbers(), numbers.gpus, fitted_);
    AddNumbers(ServingEngineNumbers(), numbers.engines, fitted_);
    std::map<std::string, int> rows;
    for (const ServingCase* each : cases) ++rows[each->row.Group()];
    for (const ServingCase* each : cases) {
      weights_.push_back(std::pow(rows[each->row.Group()], kGroupExponent));
      std::vector<size_t>& concerned = concerned_.emplace_back();
      const void* gpu = &numbers.gpu(each->profile->generation);
      const void* engine = &numbers.engine(each->engine->name);
      for (size_t i = 0; i < fitted_.size(); ++i) {
        if (fitted_[i].owner == gpu || fitted_[i].owner == engine) concerned.push_back(i);
      }
    }
  }

  void Run() {
    Vector logs;
    for (const Fitted& each : fitted_) {
      const double log = each.quantity == nullptr ? each.prior : std::log(each.quantity->value);
      logs.push_back(std::clamp(log, each.least, each.most));
    }
    Set(logs);
    double damping = 1e-3;
    double loss = Loss(logs);
    for (int step = 0; step < kMostSteps; ++step) {
      Matrix curvature;
      Vector gradient;
      Linearise(logs, curvature, gradient);
      HoldAtBounds(logs, curvature, gradient);
      bool better = false;
      bool done = false;
      for (int attempt = 0; attempt < kMostAttempts && !better; ++attempt, damping *= 8) {
        Matrix damped = curvature;
        for (size_t i = 0; i < logs.size(); ++i) damped[i][i] *= 1 + damping;
        const Vector next = Step(logs, damped, gradient);
        Set(next);
        const double next_loss = Loss(next);
        if (!(next_loss < loss)) continue;
        better = true;
        done = loss - next_loss < kDone * loss && damping < kLargeDamping;
        logs = next;
        loss = next_loss;
        damping /= 64;
      }
      if (!better || done) break;
    }
    Set(logs);
  }

 private:
  void Set(const Vector& logs) {
    for (size_t i = 0; i < logs.size(); ++i) {
      if (fitted_[i].quantity != nullptr) fitted_[i].quantity->value = std::exp(logs[i]);
    }
  }

  /// Logarithm of predicted / measured seconds.
  double Residual(size_t row) const {
    const ServingCase& of = *cases_[row];
    const ServingBreakdown cost =
        PriceCase(of, numbers_.gpu(of.profile->generation), numbers_.engine(of.engine->name));
    return std::log(cost.seconds() / of.measured_s);
  }

  /// By how much a number is off what is expected of it.
  double Off(size_t i, const Vector& logs) const {
    const size_t expected = fitted_[i].expected;
    return logs[i] - (expected == i ? fitted_[i].prior : logs[expected]);
  }

  double Loss(const Vector& logs) const {
    constexpr double kRatio = kHuberScale / kSigma;
    double loss = 0;
    for (size_t row = 0; row < cases_.size(); ++row) {
      const double scaled = Residual(row) / kHuberScale;
      loss += weights_[row] * kRatio * kRatio * (std::sqrt(1 + scaled * scaled) - 1);
    }
    for (size_t i = 0; i < logs.size(); ++i) {
      const double off = Off(i, logs) / fitted_[i].spread;
      loss += 0.5 * off * off;
    }
    return loss;
  }

  void Linearise(const Vector& logs, Matrix& curvature, Vector& gradient) {
    const size_t n = fitted_.size();
    curvature.assign(n, Vector(n, 0));
    gradient.assign(n, 0);
    for (size_t i = 0; i < n; ++i) {
      const double precision = 1 / (fitted_[i].spread * fitted_[i].spread);
      const size_t expected = fitted_[i].expected;
      curvature[i][i] += precision;
      gradient[i] += precision * Off(i, logs);
      if (expected == i) continue;
      curvature[expected][expected] += precision;
      curvature[i][expected] -= precision;
      curvature[expected][i] -= precision;
      gradient[expected] -= precision * Off(i, logs);
    }
    for (size_t row = 0; row < cases_.size(); ++row) {
      const double residual = Residual(row);
      const double scaled = residual / kHuberScale;
      const double count = weights_[row] / std::sqrt(1 + scaled * scaled) / (kSigma * kSigma);
      const std::vector<size_t>& concerned = concerned_[row];
      Vector slopes;
      for (const size_t i : concerned) {
        fitted_[i].quantity->value = std::exp(logs[i] + kDifference);
        slopes.push_back((Residual(row) - residual) / kDifference);
        fitted_[i].quantity->value = std::exp(logs[i]);
      }
      for (size_t a = 0; a < concerned.size(); ++a) {
        gradient[concerned[a]] += count * slopes[a] * residual;
        for (size_t b = 0; b < concerned.size(); ++b) {
          curvature[concerned[a]][concerned[b]] += count * slopes[a] * slopes[b];
        }
      }
    }
  }

  /// Where a step leads. Numbers that would go beyond a bound stop there, and the others move as if
  /// that were given.
  Vector Step(const Vector& logs, const Matrix& curvature, const Vector& gradient) const {
    const size_t n = logs.size();
    Vector next = logs;
    std::vector<bool> held(n, false);
    for (bool hit = true; hit;) {
      Matrix matrix = curvature;
      Vector vector = gradient;
      for (size_t i = 0; i < n; ++i) {
        if (!held[i]) continue;
        for (size_t j = 0; j < n; ++j) {
          if (!held[j]) vector[j] -= curvature[j][i] * (logs[i] - next[i]);
          matrix[i][j] = matrix[j][i] = 0;
        }
        matrix[i][i] = 1;
        vector[i] = logs[i] - next[i];
      }
      const Vector change = Cholesky(std::move(matrix)).Solve(vector);
      hit = false;
      for (size_t i = 0; i < n; ++i) {
        if (held[i]) continue;
        next[i] = std::clamp(logs[i] - change[i], fitted_[i].least, fitted_[i].most);
        if (next[i] == logs[i] - change[i]) continue;
        held[i] = true;
        hit = true;
      }
    }
    return next;
  }

  /// Leaves out numbers that are at a bound and would go beyond it: the others then move as if
  /// these were given.
  void HoldAtBounds(const Vector& logs, Matrix& curvature, Vector& gradient) const {
    for (size_t i = 0; i < logs.size(); ++i) {
      const bool low = logs[i] <= fitted_[i].least && gradient[i] > 0;
      const bool high = logs[i] >= fitted_[i].most && gradient[i] < 0;
      if (!low && !high) continue;
      for (size_t j = 0; j < logs.size(); ++j) curvature[i][j] = curvature[j][i] = 0;
      curvature[i][i] = 1;
      gradient[i] = 0;
    }
  }

  const std::vector<const ServingCase*>& cases_;
  ServingNumbers& numbers_;
  std::vector<Fitted> fitted_;
  std::vector<double> weights_;
  std::vector<std::vector<size_t>> concerned_;
};

std::string KeyOf(const ServingCase& of, LeftOut by) {
  switch (by) {
    case LeftOut::kGroup:
      return of.row.Group();
    case LeftOut::kModel:
      return of.row.model_name;
    case LeftOut::kGpu:
      return of.row.gpu;
    case LeftOut::kEngine:
      return of.row.engine;
  }
  return "";
}

}  // namespace

std::string_view Name(LeftOut by) {
  static constexpr std::array<std::string_view, 4> kNames = {"group", "model", "gpu", "engine"};
  return kNames[static_cast<size_t>(by)];
}

const ServingGpu& ServingNumbers::gpu(const std::string& generation) const {
  for (const ServingGpu& each : gpus) {
    if (each.generation == generation) return each;
  }
  TRIMTAB_ASSERT(false, "no numbers of the generation {}", generation);
}

const ServingEngine& ServingNumbers::engine(const std::string& name) const {
  for (const ServingEngine& each : engines) {
    if (each.name == name) return each;
  }
  TRIMTAB_ASSERT(false, "no numbers of the engine {}", name);
}

ServingNumbers BuiltinNumbers(const std::vector<ServingCase>& cases) {
  ServingNumbers numbers;
  std::set<std::string> generations;
  for (const ServingCase& each : cases) generations.insert(each.profile->generation);
  for (const std::string& each : generations) numbers.gpus.push_back(ServingGpuOf(each));
  numbers.engines = BuiltinServingEngines();
  return numbers;
}

ServingNumbers NumbersAtPriors(const std::vector<ServingCase>& cases) {
  ServingNumbers numbers = BuiltinNumbers(cases);
  std::vector<Fitted> fitted;
  AddNumbers(ServingGpuNumbers(), numbers.gpus, fitted);
  AddNumbers(ServingEngineNumbers(), numbers.engines, fitted);
  for (const Fitted& each : fitted) {
    if (each.quantity != nullptr) each.quantity->value = std::exp(each.prior);
  }
  return numbers;
}

double ErrorOf(const ServingCase& of, const ServingNumbers& numbers) {
  const double ratio =
      PriceCase(of, numbers.gpu(of.profile->generation), numbers.engine(of.engine->name))
          .seconds() /
      of.measured_s;
  const bool rate = of.row.output_tokens_per_s > 0 && of.row.kind != ServingKind::kServed;
  return (rate ? 1 / ratio : ratio) - 1;
}

ServingNumbers FitServing(const std::vector<const ServingCase*>& cases,
                          const ServingNumbers& start) {
  ServingNumbers numbers = start;
  Fitter(cases, numbers).Run();
  return numbers;
}

ServingFit FitServingHeldOut(const std::vector<ServingCase>& cases, LeftOut by) {
  ServingFit fit;
  std::set<std::string> keys;
  std::vector<const ServingCase*> all;
  for (const ServingCase& each : cases) {
    keys.insert(KeyOf(each, by));
    all.push_back(&each);
  }
  fit.numbers = FitServing(all, NumbersAtPriors(cases));
  fit.held_out_errors.resize(cases.size());
  for (const std::string& key : keys) {
    std::vector<const ServingCase*> others;
    for (const ServingCase& each : cases) {
      if (KeyOf(each, by) != key) others.push_back(&each);
    }
    // From the priors: a start that knows the rows left out may end in a minimum that does too.
    const ServingNumbers numbers = FitServing(others, NumbersAtPriors(cases));
    for (size_t i = 0; i < cases.size(); ++i) {
      if (KeyOf(cases[i], by) == key) fit.held_out_errors[i] = ErrorOf(cases[i], numbers);
    }
  }
  return fit;
}

}  // namespace trimtab
