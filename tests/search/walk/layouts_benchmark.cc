// How right predictions are about this machine: legal layouts of three small models on up to four
// ranks, measured in one race, in rounds of an order of their own, beside the closed form. The
// race's fit takes what the machine did meanwhile off the measured times, as it does in a search.
// What all layouts are off by alike is the machine's speed, which the probe tells only roughly and
// no comparison depends on: it is printed, and the errors are without it.
//
//   bazel run //tests/search/walk:layouts_benchmark -- [profiles] [every] [rounds] [rows.csv]
//
// `profiles`: files of `trimtab calibrate --out`, separated by commas: all predict what is
// measured once. Without them (or with "-") the machine is calibrated first, which takes a minute
// and a half. `every`: one layout in so many; `rounds`: visits of each; `rows.csv`: a line for
// each.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "cost_model/closed_form/closed_form.h"
#include "engine/config/rules/rules.h"
#include "engine/families/load_config.h"
#include "profiler/calibrate/calibrate.h"
#include "profiler/measure.h"
#include "profiler/race_fit.h"
#include "profiler/stats.h"
#include "search/race/race.h"

namespace trimtab {
namespace {

constexpr int64_t kSequence = 128;
constexpr int64_t kGlobalBatch = 8;
constexpr int64_t kMostRanks = 4;
constexpr double kConfidence = 0.9;  // of the fit; its middles do not depend on it

ModelConfig SmallModel(const std::string& preset) {
  ModelConfig model = LoadModelConfig(preset);
  model.vocab_size = 1024;
  model.hidden_size = 128;
  model.num_layers = 4;
  model.num_heads = 4;
  model.num_kv_heads = std::min<int64_t>(model.num_kv_heads, 4);
  model.ffn_hidden_size = 384;
  model.max_sequence_length = kSequence;
  if (model.moe.used()) {
    model.moe.num_experts = 4;
    model.moe.router_topk = 2;
    model.moe.ffn_hidden_size = 192;
  }
  return model;
}

std::vector<RunConfig> EveryLayout(const ModelConfig& model) {
  std::vector<RunConfig> runs;
  for (const char* ranks :
       {"tp=1",      "tp=2",      "tp=2,sp=1",      "tp=4",      "tp=4,sp=1",
        "dp=2",      "dp=4",      "pp=2",           "pp=4",      "pp=2,schedule=gpipe",
        "pp=2,vp=2", "tp=2,dp=2", "tp=2,sp=1,dp=2", "tp=2,pp=2", "tp=2,sp=1,pp=2",
        "dp=2,pp=2", "cp=2",      "cp=2,dp=2",      "cp=2,tp=2", "dp=2,ep=2",
        "dp=4,ep=2", "dp=4,ep=4"}) {
    for (const char* zero : {"zero=0", "zero=1", "zero=2", "zero=3"}) {
      for (const char* batch : {"mbs=1", "mbs=2", "mbs=4", "mbs=8"}) {
        for (const char* again :
             {"recompute=none", "recompute=full", "recompute=selective:core_attn"}) {
          RunConfig run;
          run.model = model;
          run.sequence_length = kSequence;
          run.global_batch = kGlobalBatch;
          run.layout = ParseLayout(fmt::format("{},{},{},{}", ranks, zero, batch, again), 0);
          if (run.layout.vp > 1) run.layout.schedule = Schedule::kInterleaved1F1B;
          if (run.layout.world_size() > kMostRanks || FirstBrokenRule(run) != nullptr) continue;
          run.threads_per_rank =
              std::max<int64_t>(1, CoresOfThisMachine() / run.layout.world_size());
          runs.push_back(WithLength(run));
        }
      }
    }
  }
  return runs;
}

/// A layout of a model, as measured and as each of the profiles predicts it.
struct Contestant {
  RunConfig run;
  double measured_s = 0;  // of a step, at the speed of the first profile
  std::vector<double> predicted_s;
};

Measurement Measured(const RunConfig& run) {
  return Measure(
      run, {.warmup = 1, .steps = 4, .max_steps = 12, .max_seconds = 0.4, .breakdown_visit = 0});
}

/// Visits each of `contestants` once a round.
void MeasureAll(const Cluster& cluster, int rounds, std::mt19937& random,
                std::vector<Contestant>& contestants) {
  std::vector<size_t> order(contestants.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<RaceVisit> visits;
  for (int round = 0; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      const RunConfig& run = contestants[i].run;
      visits.push_back(RaceVisitOf(i, round, run, Measured(run)));
    }
  }
  const RaceFit fit(visits, contestants.size(), ProbeReferences(cluster.profile), kConfidence);
  for (size_t i = 0; i < contestants.size(); ++i) {
    contestants[i].measured_s = std::exp(fit.StepTime(i).log);
  }
  fmt::print("machine at {:.2f} of its calibrated speed, a visit scatters by {:.1f} %\n",
             fit.speed().median, 100 * fit.scatter());
}

void WriteRows(const std::vector<Contestant>& contestants, std::ofstream& rows) {
  for (const Contestant& each : contestants) {
    rows << fmt::format("{},\"{}\",{:.6f},{:.6f}\n", each.run.model.name, ToString(each.run.layout),
                        each.measured_s, fmt::join(each.predicted_s, ","));
  }
}

/// A layout beside what one profile predicts.
struct Prediction {
  const Contestant* of;
  double ratio;  // predicted over measured, without what is common to all

  double error() const { return std::abs(ratio - 1); }
};

double MedianOf(std::span<const Prediction> predictions, double (*value)(const Prediction&)) {
  std::vector<double> values;
  for (const Prediction& each : predictions) values.push_back(value(each));
  return Median(std::move(values));
}
double Ratio(const Prediction& prediction) { return prediction.ratio; }
double Error(const Prediction& prediction) { return prediction.error(); }

/// Of one model.
void ReportModel(std::span<const Prediction> predictions) {
  const auto measured = [](const Prediction& each) { return each.of->measured_s; };
  const auto predicted = [&](const Prediction& each) { return each.ratio * measured(each); };
  const Prediction& best = *std::ranges::min_element(predictions, {}, measured);
  const Prediction& chosen = *std::ranges::min_element(predictions, {}, predicted);
  const auto place = std::ranges::count_if(
      predictions, [&](const Prediction& each) { return predicted(each) < predicted(best); });
  fmt::print(
      "  {}: {} layouts, error median {:.1f} %; the fastest measured ({}) is predicted in "
      "place {}; the one predicted fastest is {:.1f} % slower\n",
      best.of->run.model.name, predictions.size(), 100 * MedianOf(predictions, Error),
      ToString(best.of->run.layout), place + 1, 100 * (measured(chosen) / measured(best) - 1));
}

/// What profile `index` makes of all.
void Report(std::span<const Contestant> contestants, size_t index) {
  std::vector<Prediction> all;
  for (const Contestant& each : contestants) {
    all.push_back({&each, each.predicted_s[index] / each.measured_s});
  }
  const double alike = MedianOf(all, Ratio);
  for (Prediction& each : all) each.ratio /= alike;
  std::vector<double> errors;
  for (const Prediction& each : all) errors.push_back(each.error());
  std::ranges::sort(errors);
  fmt::print(
      "{} layouts, error median {:.1f} %, p90 {:.1f} % (predicted / measured of all alike, "
      "{:.3f}, taken off)\n",
      all.size(), 100 * errors[errors.size() / 2], 100 * errors[errors.size() * 9 / 10], alike);
  for (auto begin = all.begin(); begin != all.end();) {
    const auto end = std::find_if(begin, all.end(), [&](const Prediction& each) {
      return each.of->run.model.name != begin->of->run.model.name;
    });
    ReportModel({begin, end});
    begin = end;
  }
  for (int64_t ranks = 1; ranks <= kMostRanks; ranks *= 2) {
    std::vector<Prediction> some;
    std::ranges::copy_if(all, std::back_inserter(some), [&](const Prediction& each) {
      return each.of->run.layout.world_size() == ranks;
    });
    if (some.empty()) continue;
    fmt::print("  {} ranks: predicted / measured, median {:.3f} over {}\n", ranks,
               MedianOf(some, Ratio), some.size());
  }
}

/// The machine as each of `files`, separated by commas, knows it; "-": as it is now.
std::vector<Cluster> Machines(const std::string& files) {
  if (files == "-") {
    CalibrateOptions quick;
    quick.quick = true;
    return {LocalMachine(Calibrate(quick))};
  }
  std::vector<Cluster> machines;
  std::istringstream names(files);
  for (std::string name; std::getline(names, name, ',');) {
    machines.push_back(LoadCluster("local", name));
  }
  return machines;
}

int Main(int count, char** arguments) {
  const std::vector<Cluster> machines = Machines(count > 1 ? arguments[1] : "-");
  const size_t every = count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 1;
  const int rounds = count > 3 ? std::atoi(arguments[3]) : 2;
  std::ofstream rows(count > 4 ? arguments[4] : "/dev/null");
  rows << "model,layout,measured_s,predicted_s\n";
  std::mt19937 random(1);
  std::vector<Contestant> contestants;
  size_t first = 0;  // not the same layouts of each model
  for (const char* preset : {"gpt2-124m", "llama2-7b", "mixtral-8x7b"}) {
    const std::vector<RunConfig> runs = EveryLayout(SmallModel(preset));
    for (size_t i = first++ % every; i < runs.size(); i += every) {
      Contestant& each = contestants.emplace_back(runs[i]);
      for (const Cluster& machine : machines) {
        each.predicted_s.push_back(ClosedForm(runs[i], machine).step_time_s);
      }
    }
  }
  MeasureAll(machines.front(), rounds, random, contestants);
  WriteRows(contestants, rows);
  for (size_t i = 0; i < machines.size(); ++i) Report(contestants, i);
  return 0;
}

}  // namespace
}  // namespace trimtab

int main(int count, char** arguments) { return trimtab::Main(count, arguments); }
