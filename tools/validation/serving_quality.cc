#include "tools/validation/serving_quality.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "cost_model/hardware/cluster.h"
#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/infer/serving_json.h"

namespace trimtab {
namespace {

constexpr char kTold[] = "--perplexity";

using Stored = std::pair<WeightFormat, DType>;
constexpr Stored kOriginal = {WeightFormat::kF32, DType::kF32};

bool IsIn(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

void ServingQualityFlags::Declare(FlagSet& flags) {
  flags_ = &flags;
  source_.Declare(flags);
  flags.Group("Quality");
  held_out_.Declare(flags, "text whose perplexity is measured, for --require perplexity<1.02x");
  flags.List(std::string(kTold) + " W/C=X,...", told_,
             {"known perplexities, relative to the original weights",
              "By weights and cache: fp8/fp8=1.004,bf16/bf16=1."});
}

void ServingQualityFlags::Resolve(ServingProblem& problem) {
  const std::string given = flags_->FirstGiven(
      {kTold, "--load", "--load-hf", "--tokenizer", "--held-out", "--held-out-tokens"});
  if (!problem.limits_quality()) {
    if (given.empty()) return;
    throw UsageError(fmt::format("{} needs --require perplexity<1.02x", given));
  }
  if (given.empty()) {
    throw UsageError(
        "--require perplexity: without weights there is nothing to measure; expected --load or "
        "--load-hf with --held-out, or --perplexity with what is known");
  }
  if (!told_.empty()) {
    if (given != kTold || !flags_->FirstGiven({"--load", "--load-hf", "--held-out"}).empty()) {
      throw UsageError("--perplexity contradicts --load, --load-hf and --held-out");
    }
    return TakeTold(problem);
  }
  if (held_out_.file.empty()) {
    throw UsageError("--require perplexity: expected --held-out, a text to measure it on");
  }
  weights_ = source_.OpenWeights();
  RequireOriginal(*weights_);
  ModelConfig same = problem.model;
  same.name = weights_->model().name;
  if (same != weights_->model()) {
    throw InputError(fmt::format("--model {}: the weights are of another model, {}",
                                 problem.model.name, weights_->model().name));
  }
  text_ = held_out_.Tokens(*source_.OpenTokenizerOf(*weights_));
  problem.quality.of =
      fmt::format("{} of {}, with the weights of {}", Counted(std::ssize(text_), "token"),
                  held_out_.file, source_.folder());
  problem.perplexity = [this](WeightFormat weights, DType cache) { return Rise(weights, cache); };
}

void ServingQualityFlags::TakeTold(ServingProblem& problem) const {
  for (const std::string& each : told_) {
    const size_t slash = std::min(each.find('/'), each.size());
    const size_t equals = std::min(each.find('=', slash), each.size());
    const std::string weights = each.substr(0, slash);
    const std::string cache = slash < equals ? each.substr(slash + 1, equals - slash - 1) : "";
    double rise = 0;
    const char* const end = each.data() + each.size();
    const auto read = std::from_chars(each.data() + std::min(equals + 1, each.size()), end, rise);
    const bool good = read.ec == std::errc() && read.ptr == end && std::isfinite(rise) && rise > 0;
    if (!good || !IsIn(WeightNames(), weights) || !IsIn(CacheNames(), cache)) {
      throw UsageError(
          fmt::format("{}: '{}'; expected weights/cache=rise, as fp8/fp8=1.004", kTold, each));
    }
    if (!problem.quality.rises.emplace(Stored{WeightFormatOf(weights), CacheType(cache)}, rise)
             .second) {
      throw UsageError(fmt::format("{}: {}/{} is given twice", kTold, weights, cache));
    }
  }
}

double ServingQualityFlags::Perplexity(WeightFormat weights, DType cache) const {
  const auto threads = std::max<int64_t>(1, static_cast<int64_t>(CoresOfThisMachine()));
  ReadingConfig(weights_->model(), weights, cache, threads);  // throws where it cannot be stored so
  return PerplexityOf(*weights_, weights, cache, threads, text_);
}

double ServingQualityFlags::Rise(WeightFormat weights, DType cache) {
  if (Stored{weights, cache} == kOriginal) return 1;
  if (original_ == 0) original_ = Perplexity(kOriginal.first, kOriginal.second);
  return Perplexity(weights, cache) / original_;
}

}  // namespace trimtab
