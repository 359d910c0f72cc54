// How well the probe stands for steps while the machine's speed wanders: a few layouts are visited
// in turn, with probes between their steps. Prints each layout's scatter of the log step time, and
// what is left of it once each block of steps is divided by the speed around it.
//
//   bazel run //tests/profiler:probe_benchmark -- [seconds] [model] [sequence]

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/config/model/model_config.h"
#include "engine/families/load_config.h"
#include "engine/train/trainer.h"
#include "profiler/probe.h"
#include "profiler/stats.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Block {
  double step_s = 0;
  double probe_s = 0;
};

/// One visit: a step to warm up, then `blocks` of `steps` between probes.
std::vector<Block> Visit(const RunConfig& run, int blocks, int steps) {
  const auto source = MakeSyntheticSource(run.model.vocab_size, run.seed);
  std::vector<Block> result;
  RunRanks(run, [&](Rank& rank) {
    Trainer trainer(run, rank.parallel(), rank.device());
    Probe probe(rank);
    int64_t step = 0;
    trainer.Step(*source, step++);
    double before = probe.Seconds();
    for (int block = 0; block < blocks; ++block) {
      rank.Barrier();
      const Clock::time_point start = Clock::now();
      for (int i = 0; i < steps; ++i) {
        trainer.Step(*source, step++);
        rank.Barrier();
      }
      const double seconds = SecondsSince(start) / steps;
      const double after = probe.Seconds();
      if (rank.speaks()) result.push_back({seconds, std::sqrt(before * after)});
      before = after;
    }
  });
  return result;
}

struct Series {
  RunConfig run;
  std::vector<double> log_step;   // a visit's median, natural log
  std::vector<double> log_probe;  // likewise
};

double Spread(const std::vector<double>& values) {
  double mean = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

void Main(double seconds, const std::string& model, int64_t sequence) {
  std::vector<Series> all;
  for (const char* layout :
       {"dp=1,mbs=2", "tp=2,sp=1,dp=1,mbs=4", "tp=2,dp=1,mbs=2", "dp=2,mbs=2", "tp=2,dp=2,mbs=2"}) {
    Series& series = all.emplace_back();
    series.run.model = LoadModelConfig(model);
    series.run.layout = ParseLayout(layout, 0);
    series.run.global_batch = 16;
    series.run.sequence_length = sequence;
    series.run.steps = 1000;
  }
  const Clock::time_point start = Clock::now();
  for (int round = 0; SecondsSince(start) < seconds; ++round) {
    for (Series& series : all) {
      std::vector<double> steps;
      std::vector<double> probes;
      for (const Block& block : Visit(series.run, 4, 1)) {
        steps.push_back(std::log(block.step_s));
        probes.push_back(std::log(block.probe_s));
      }
      series.log_step.push_back(Median(steps));
      series.log_probe.push_back(Median(probes));
      fmt::print("{:.1f},{},{:.6f},{:.6f}\n", SecondsSince(start), ToString(series.run.layout),
                 std::exp(series.log_step.back()), std::exp(series.log_probe.back()));
      std::fflush(stdout);
    }
  }
  fmt::print("{:<24} {:>10} {:>8} {:>8} {:>8}\n", "layout", "step", "raw", "probe", "left");
  for (const Series& series : all) {
    std::vector<double> left;
    for (size_t i = 0; i < series.log_step.size(); ++i) {
      left.push_back(series.log_step[i] - series.log_probe[i]);
    }
    fmt::print("{:<24} {:>8.0f}ms {:>7.1f}% {:>7.1f}% {:>7.1f}%\n", ToString(series.run.layout),
               1e3 * std::exp(Median(series.log_step)), 100 * Spread(series.log_step),
               100 * Spread(series.log_probe), 100 * Spread(left));
  }
}

}  // namespace
}  // namespace trimtab

int main(int argc, char** argv) {
  trimtab::Main(argc > 1 ? std::atof(argv[1]) : 60, argc > 2 ? argv[2] : "gpt2-10m",
                argc > 3 ? std::atol(argv[3]) : 128);
}
