#include "cost_model/serving/validation/serving_case.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/error.h"

namespace trimtab {
namespace {

ServingPrecision PrecisionOf(const std::string& name) {
  if (name == "fp8") return ServingPrecision::kFp8;
  if (name == "nvfp4") return ServingPrecision::kNvFp4;
  if (name == "mxfp4") return ServingPrecision::kMxFp4;
  if (name == "int4") return ServingPrecision::kInt4;
  return ServingPrecision::k16Bit;
}

/// Bytes of a key or value.
int64_t KvBytes(ServingCase& into) {
  const std::string& told = into.row.kv_precision;
  if (!told.empty()) return told == "fp8" ? 1 : 2;
  // Checkpoints in nvfp4 carry scales for the cache too, and those in fp8 for this engine.
  const bool fp8 =
      into.layout.weights == ServingPrecision::kNvFp4 ||
      (into.layout.weights == ServingPrecision::kFp8 && into.row.engine == "tensorrt-llm");
  if (fp8) {
    into.assumptions.emplace_back("a cache in fp8");
    return 1;
  }
  into.assumptions.emplace_back("a cache in 16 bits");
  return 2;
}

int64_t Scaled(int64_t tokens, double by) {
  return std::max<int64_t>(1, std::llround(static_cast<double>(tokens) * by));
}

ServingLoad LoadOf(const PublishedServing& row) {
  ServingLoad load;
  load.input = Scaled(row.input_tokens, row.mean_length);
  load.output = Scaled(row.output_tokens, row.mean_length);
  switch (row.kind) {
    case ServingKind::kServed:
      load.kind = ServingLoad::Kind::kServed;
      load.sequences = row.concurrency;
      break;
    case ServingKind::kSaturated:
      load.kind = ServingLoad::Kind::kSaturated;
      load.requests = row.requests;
      break;
    case ServingKind::kStaticBatch:
      load.kind = ServingLoad::Kind::kStatic;
      load.sequences = row.batch;
      break;
  }
  return load;
}

/// From the first token of an answer to its last.
double AnswerSeconds(const PublishedServing& row) {
  return row.tpot_s * row.mean_length * static_cast<double>(row.output_tokens);
}

/// Tokens that the caches hold while so many sequences run.
double HeldTokens(const ServingCase& of, double running) {
  const ServingLoad load = LoadOf(of.row);
  return running * (static_cast<double>(load.input) +
                    HeldOfOutput(*of.engine) * static_cast<double>(load.output));
}

/// Rows of one instance, which differ in lengths and load.
std::string InstanceOf(const ServingCase& of) {
  const PublishedServing& row = of.row;
  return fmt::format("{} {} tp{} pp{} ep{} {} {}", row.Group(), row.engine_version, row.tp, row.pp,
                     row.ep, row.weight_precision, of.layout.kv_bytes);
}

/// Of those in flight as many run as are past their first token (Little's law).
void AddShownTokens(std::vector<ServingCase>& cases) {
  std::map<std::string, double> shown;
  for (const ServingCase& each : cases) {
    const PublishedServing& row = each.row;
    if (row.kind != ServingKind::kServed || row.ttft_s == 0) continue;
    const double answer = AnswerSeconds(row);
    const double running = static_cast<double>(row.concurrency) * answer / (answer + row.ttft_s);
    double& most = shown[InstanceOf(each)];
    most = std::max(most, HeldTokens(each, running));
  }
  for (ServingCase& each : cases) each.shown_tokens = shown[InstanceOf(each)];
}

}  // namespace

ServingRecorder& ServingRecorders::Get(const PublishedServing& row, const ServingLayout& layout) {
  const std::string key =
      fmt::format("{} {} {} {} {} {} {} {}", row.model_name, layout.tp, layout.pp, layout.dp,
                  Name(layout.weights), layout.only_experts, layout.wide_latent, layout.kv_bytes);
  for (const auto& [name, recorder] : recorders_) {
    if (name == key) return *recorder;
  }
  recorders_.emplace_back(key, std::make_unique<ServingRecorder>(row.model, layout));
  return *recorders_.back().second;
}

ServingBreakdown PriceCase(const ServingCase& of, const ServingGpu& gpu,
                           const ServingEngine& engine) {
  const ServingPricer pricer(
      ServingRatesOf(*of.profile, gpu, engine, of.layout.weights, of.layout.kv_bytes));
  ServingBreakdown sum;
  for (const auto& [work, count] : of.work) {
    const ServingBreakdown step = pricer.Price(work);
    sum.dense_s += count * step.dense_s;
    sum.experts_s += count * step.experts_s;
    sum.head_s += count * step.head_s;
    sum.attention_s += count * step.attention_s;
    sum.messages_s += count * step.messages_s;
    sum.other_s += count * step.other_s;
    sum.gaps_s += count * step.gaps_s;
    sum.prompt_floor_s += count * step.prompt_floor_s;
    sum.host_s += count * step.host_s;
  }
  return sum;
}

bool WaitedForRoom(const ServingCase& of, const ServingGpu& gpu, const ServingEngine& engine) {
  // A cache that held as much in another run has room, whatever the first tokens waited for.
  if (of.shown_tokens >= HeldTokens(of, static_cast<double>(of.row.concurrency))) return false;
  constexpr double kLeastWait = 2.5;  // seconds: less may be a warm-up
  constexpr double kLeastShare =
      0.04;  // of a request's time: less may be the first requests' alone
  // Against the time of all prompts in flight, one after the other. All of them come at once in the
  // beginning alone, and where prompts are computed alone they queue for that too.
  const double much = engine.policy == PromptPolicy::kAlone ? 1.5 : 0.25;
  const PublishedServing& row = of.row;
  if (row.kind != ServingKind::kServed || row.ttft_s < kLeastWait) return false;
  const double answer = AnswerSeconds(row);
  if (row.ttft_s < kLeastShare * (row.ttft_s + answer)) return false;
  const ServingPricer pricer(
      ServingRatesOf(*of.profile, gpu, engine, of.layout.weights, of.layout.kv_bytes));
  const auto prompts = static_cast<double>(row.concurrency) / static_cast<double>(of.layout.dp);
  return row.ttft_s > much * prompts * pricer.Price(of.prompt).seconds();
}

ServingCase CaseOf(const PublishedServing& row, ServingRecorders& recorders) {
  ServingCase result;
  result.row = row;
  if (!row.unsupported.empty()) throw InfeasibleError(row.unsupported);
  result.profile = FindBuiltinProfile(row.gpu);
  if (result.profile == nullptr) throw UsageError("no profile of the GPU " + row.gpu);
  result.engine = ServingEngineOf(row.engine, row.engine_version);
  if (result.engine == nullptr) throw UsageError("no numbers of the engine " + row.engine);
  ServingLayout& layout = result.layout;
  layout.tp = row.tp;
  layout.pp = row.pp;
  layout.dp = row.dp;
  layout.weights = PrecisionOf(row.weight_precision);
  // These two were made for experts alone: GPT-OSS, Kimi K2.
  layout.only_experts =
      row.only_experts || (row.model.moe.used() && (layout.weights == ServingPrecision::kMxFp4 ||
                                                    layout.weights == ServingPrecision::kInt4));
  layout.wide_latent = row.wide_latent;
  layout.expands_prompts = row.model.latent.used();  // as all engines do that were measured
  layout.kv_bytes = KvBytes(result);
  ServingRecorder& recorder = recorders.Get(row, layout);
  result.footprint = recorder.footprint();
  const ServingLoad load = LoadOf(row);
  result.plan =
      PlanServing(load, *result.engine, layout, result.footprint, VisibleMemory(*result.profile));
  for (const CountedStep& each : result.plan.steps) {
    result.work.emplace_back(recorder.Record(each.step), each.count);
  }
  result.prompt = recorder.Record({.prompts = 1, .prompt_tokens = load.input});
  if (row.kind == ServingKind::kServed) {
    result.measured_s = row.tpot_s;
  } else if (row.output_tokens_per_s > 0) {
    result.measured_s = result.plan.tokens / row.output_tokens_per_s;
  } else {
    result.measured_s = row.ttft_s;
  }
  return result;
}

ServingCases TakeServing(const std::vector<PublishedServing>& rows) {
  ServingCases taken;
  ServingRecorders recorders;
  for (const PublishedServing& row : rows) {
    try {
      taken.cases.push_back(CaseOf(row, recorders));
    } catch (const Error& error) {  // one row says nothing about the others
      taken.skipped.emplace_back(row.id, error.what());
    }
  }
  AddShownTokens(taken.cases);
  return taken;
}

}  // namespace trimtab
