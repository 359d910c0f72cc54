// How right predictions are about this machine: legal layouts of three small models on up to four
// ranks, each measured in rounds of an order of its own, beside the closed form. A race's fit takes
// what the machine did meanwhile off the measured times, as it does in a search. What all of a
// model's layouts are off by alike is the machine's speed, which the probe tells only roughly and
// no comparison depends on: it is printed, and the errors are without it.
//
//   bazel run //tests/search:layouts_benchmark -- [profile.json] [every] [rounds] [rows.csv]
//
// Without a profile (or with "-") the machine is calibrated first, which takes a minute and a half.
// `every`: one layout in so many; `rounds`: visits of each; `rows.csv`: a line for each layout.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cost_model/closed_form.h"
#include "engine/config/rules.h"
#include "profiler/calibrate.h"
#include "profiler/measure.h"
#include "profiler/race_fit.h"
#include "profiler/stats.h"
#include "search/race.h"

namespace trimtab {
namespace {

constexpr int64_t kSequence = 128;
constexpr int64_t kGlobalBatch = 8;
constexpr int64_t kMostRanks = 4;
constexpr size_t kTop = 3;
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

/// A layout of a model, as predicted and as measured.
struct Contestant {
  RunConfig run;
  double predicted_s = 0;
  double measured = 0;  // seconds of a step at the speed of the profile

  double ratio() const { return predicted_s / measured; }
  double error() const { return std::abs(ratio() - 1); }
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
    contestants[i].measured = std::exp(fit.StepTime(i).log);
  }
  fmt::print("machine at {:.2f} of its calibrated speed, a visit scatters by {:.1f} %\n",
             fit.speed().median, 100 * fit.scatter());
  std::vector<double> ratios;
  for (const Contestant& each : contestants) ratios.push_back(each.ratio());
  const double alike = Median(std::move(ratios));
  for (Contestant& each : contestants) each.measured *= alike;
  fmt::print("all layouts alike: predicted / measured {:.3f}, taken off\n", alike);
}

void WriteRows(const std::string& model, const std::vector<Contestant>& contestants,
               std::ofstream& rows) {
  for (const Contestant& each : contestants) {
    rows << fmt::format("{},\"{}\",{:.6f},{:.6f}\n", model, ToString(each.run.layout),
                        each.predicted_s, each.measured);
  }
}

void Report(const std::string& model, std::vector<Contestant>& contestants) {
  std::vector<double> errors;
  for (const Contestant& each : contestants) errors.push_back(each.error());
  std::sort(errors.begin(), errors.end());
  const auto best = std::min_element(
      contestants.begin(), contestants.end(),
      [](const Contestant& a, const Contestant& b) { return a.measured < b.measured; });
  const auto place =
      std::count_if(contestants.begin(), contestants.end(),
                    [&](const Contestant& each) { return each.predicted_s < best->predicted_s; });
  const auto chosen = std::min_element(
      contestants.begin(), contestants.end(),
      [](const Contestant& a, const Contestant& b) { return a.predicted_s < b.predicted_s; });
  fmt::print(
      "{}: {} layouts, error median {:.1f} %, p90 {:.1f} %; the fastest measured ({}) is predicted "
      "in place {}{}; the one predicted fastest is {:.1f} % slower\n",
      model, contestants.size(), 100 * errors[errors.size() / 2],
      100 * errors[errors.size() * 9 / 10], ToString(best->run.layout), place + 1,
      static_cast<size_t>(place) < kTop ? "" : ", not among the first three",
      100 * (chosen->measured / best->measured - 1));
  std::map<Mode, std::vector<double>> by_mode;
  for (const Contestant& each : contestants) {
    const int ranks = static_cast<int>(each.run.layout.world_size());
    by_mode[{ranks, 1}].push_back(each.ratio());
  }
  for (const auto& [mode, ratios] : by_mode) {
    fmt::print("  {} ranks: predicted / measured, median {:.3f} over {}\n", mode.ranks,
               Median(ratios), ratios.size());
  }
}

int Main(int count, char** arguments) {
  const std::string file = count > 1 ? arguments[1] : "-";
  const size_t every = count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 1;
  const int rounds = count > 3 ? std::atoi(arguments[3]) : 2;
  std::ofstream rows(count > 4 ? arguments[4] : "/dev/null");
  rows << "model,layout,predicted_s,measured_s\n";
  CalibrateOptions quick;
  quick.quick = true;
  const Cluster cluster = file == "-" ? LocalMachine(Calibrate(quick)) : LoadCluster("local", file);
  std::mt19937 random(1);
  std::vector<double> all;
  for (const char* preset : {"gpt2-124m", "llama2-7b", "mixtral-8x7b"}) {
    std::vector<Contestant> contestants;
    const std::vector<RunConfig> runs = EveryLayout(SmallModel(preset));
    for (size_t i = 0; i < runs.size(); i += every) {
      contestants.push_back({runs[i], ClosedForm(runs[i], cluster).step_time_s, 0});
    }
    MeasureAll(cluster, rounds, random, contestants);
    Report(preset, contestants);
    WriteRows(preset, contestants, rows);
    for (const Contestant& each : contestants) all.push_back(each.error());
  }
  fmt::print("all: {} layouts, error median {:.1f} %\n", all.size(), 100 * Median(all));
  return 0;
}

}  // namespace
}  // namespace trimtab

int main(int count, char** arguments) { return trimtab::Main(count, arguments); }
