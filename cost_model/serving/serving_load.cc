#include "cost_model/serving/serving_load.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace trimtab {
namespace {

constexpr int64_t kCachePieces = 8;  // of a static batch: its cache grows piece by piece

/// Steps of one data-parallel rank.
class Planner {
 public:
  Planner(const ServingLoad& load, const ServingEngine& engine, const ServingLayout& layout,
          ServingPlan& plan)
      : engine_(engine),
        input_(load.input),
        output_(load.output),
        stages_(static_cast<double>(layout.pp)),
        plan_(plan) {}

  /// The time in which each of `running` sequences gets a token, while `prompts` of
  /// them make place for new ones. Returns how many get one.
  double AddRound(double running, double prompts) {
    double decoding = running;
    const auto input = static_cast<double>(input_);
    const auto budget = static_cast<double>(engine_.tokens_per_step) * stages_;
    const bool alone = engine_.policy == PromptPolicy::kAlone;
    if (!alone && prompts * input > budget - decoding && budget > decoding) {
      // As many sequences run as prompts come: running / output = (budget - running) / input.
      const double per_token = prompts / decoding;
      const double limited = budget / (1 + per_token * input);
      plan_.waits_for_steps = limited < decoding;
      decoding = std::min(decoding, limited);
      prompts = per_token * decoding;
    }
    if (alone) {
      AddDecode(decoding, 1);
      const double together = std::clamp(prompts, 1.0, std::max(1.0, budget / input));
      AddPrompts(/*decoding=*/0, together, 1, prompts / together);
      return decoding;
    }
    const double left = std::max(1.0, budget - decoding);
    const double pieces = engine_.policy == PromptPolicy::kChunked ? std::ceil(input / left) : 1.0;
    const double mixed = std::min(1.0, prompts * pieces);
    if (mixed < 1) AddDecode(decoding, 1 - mixed);
    if (mixed > 0) AddPrompts(decoding, prompts * pieces / mixed, pieces, mixed);
    return decoding;
  }

  void AddStatic(double batch) {
    AddPrompts(/*decoding=*/0, batch, 1, 1);
    const int64_t steps = output_ - 1;
    const int64_t pieces = std::min(kCachePieces, steps);
    for (int64_t i = 0; i < pieces; ++i) {
      const int64_t context = input_ + (2 * i + 1) * steps / (2 * pieces);
      Add({.sequences = Whole(batch / stages_), .context = context},
          static_cast<double>(steps) / static_cast<double>(pieces));
    }
  }

 private:
  static int64_t Whole(double count) { return std::max<int64_t>(1, std::llround(count)); }

  void Add(const ServingStep& step, double count) {
    if (count > 0) plan_.steps.push_back({step, count});
  }

  void AddDecode(double decoding, double count) {
    Add({.sequences = Whole(decoding / stages_), .context = input_ + output_ / 2}, count);
  }

  /// Steps with `together` prompts on average, each cut into so many pieces, of which a step has
  /// one: those of whole numbers around the average.
  void AddPrompts(double decoding, double together, double pieces, double count) {
    const double each = std::max(1.0, together / stages_);
    const double below = std::floor(each);
    const auto tokens = std::max<int64_t>(1, std::llround(static_cast<double>(input_) / pieces));
    const auto position = static_cast<int64_t>((pieces - 1) / 2 * static_cast<double>(tokens));
    ServingStep step = {.sequences = decoding > 0 ? Whole(decoding / stages_) : 0,
                        .context = input_ + output_ / 2,
                        .prompts = static_cast<int64_t>(below),
                        .prompt_tokens = tokens,
                        .prompt_position = position};
    const double share = std::min(1.0, together / stages_);
    Add(step, count * share * (below + 1 - each));
    step.prompts += 1;
    Add(step, count * share * (each - below));
    if (share < 1 && decoding > 0) AddDecode(decoding, count * (1 - share));
  }

  const ServingEngine& engine_;
  int64_t input_;
  int64_t output_;
  double stages_;
  ServingPlan& plan_;
};

}  // namespace

double HeldOfOutput(const ServingEngine& engine) { return engine.reserves_output ? 1.0 : 0.5; }

double RoomTokens(const ServingEngine& engine, const ServingLayout& layout,
                  const ServingFootprint& footprint, double memory_bytes) {
  const double share = engine.memory_share.value;
  const double other = footprint.weight_bytes + engine.memory_bytes.value;
  double room =
      engine.share_of_free ? share * (memory_bytes - other) : share * memory_bytes - other;
  if (footprint.windows) room *= engine.windowed_room.value;
  return std::max(0.0, room) / footprint.kv_bytes_per_token * static_cast<double>(layout.dp);
}

ServingPlan PlanServing(const ServingLoad& load, const ServingEngine& engine,
                        const ServingLayout& layout, const ServingFootprint& footprint,
                        double memory_bytes) {
  ServingPlan plan;
  const auto ranks = static_cast<double>(layout.dp);
  const auto input = static_cast<double>(load.input);
  const auto output = static_cast<double>(load.output);
  plan.room_tokens = RoomTokens(engine, layout, footprint, memory_bytes);
  plan.fits = plan.room_tokens / ranks >= input + output;
  if (!plan.fits) return plan;
  Planner planner(load, engine, layout, plan);
  if (load.kind == ServingLoad::Kind::kStatic) {
    plan.running = static_cast<double>(load.sequences);
    plan.waits_for_room = plan.running * (input + output) > plan.room_tokens;
    planner.AddStatic(plan.running / ranks);
    plan.tokens = plan.running * output;
    return plan;
  }
  const double held = input + HeldOfOutput(engine) * output;
  const double room = std::max(1.0, plan.room_tokens / ranks / held);
  const double most = std::min(room, static_cast<double>(engine.max_sequences));
  const auto asked = static_cast<double>(load.kind == ServingLoad::Kind::kServed ? load.sequences
                                                                                 : load.requests) /
                     ranks;
  const double running = asked > 0 ? std::min(asked, most) : most;
  plan.waits_for_room = (asked == 0 || asked > room) && running == room;
  if (load.kind == ServingLoad::Kind::kServed) {
    // A sequence's own prompt is not between two of its tokens.
    const double others = output > 1 ? std::max(0.0, running - 1) / (output - 1) : 0;
    plan.tokens = ranks * planner.AddRound(running, others);
    plan.running = ranks * running;
    return plan;
  }
  plan.running = ranks * running;
  if (asked == 0) {
    plan.tokens = ranks * planner.AddRound(running, running / output);
    return plan;
  }
  // One generation of sequences after the other; the last one may be smaller.
  const double full = std::floor(asked / running);
  const double rest = asked - full * running;
  for (const auto& [sequences, generations] : {std::pair(running, full), std::pair(rest, 1.0)}) {
    if (sequences < 0.5) continue;
    const size_t first = plan.steps.size();
    const double got = planner.AddRound(sequences, sequences / output);
    const double rounds = generations * output * sequences / got;
    for (size_t i = first; i < plan.steps.size(); ++i) plan.steps[i].count *= rounds;
  }
  plan.tokens = asked * ranks * output;
  return plan;
}

}  // namespace trimtab
