#include "cost_model/serving_steps.h"

#include <algorithm>

#include "engine/base/error.h"

namespace trimtab {
namespace {

/// Adds `times` what `change` says to what is linear in rows.
void AddTimes(const ServingWork& change, double times, ServingWork& work) {
  for (size_t i = 0; i < work.products.size(); ++i) {
    work.products[i].flops += times * change.products[i].flops;
  }
  for (size_t i = 0; i < work.messages.size(); ++i) {
    work.messages[i].bytes += times * change.messages[i].bytes;
  }
  work.other_bytes += times * change.other_bytes;
}

}  // namespace

StepRows& StepRows::operator+=(const StepRows& other) {
  decodes += other.decodes;
  prompt_rows += other.prompt_rows;
  outputs += other.outputs;
  keys += other.keys;
  scores += other.scores;
  return *this;
}

StepRows StepRows::operator/(double steps) const {
  return {decodes / steps, prompt_rows / steps, outputs / steps, keys / steps, scores / steps};
}

ServingSteps::ServingSteps(const ModelConfig& model, const ServingLayout& layout,
                           ServingRecorder& recorder) {
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const int64_t window = model.layer_kind(layer).sliding_window;
    const auto alike = [window](const Window& each) { return each.scores.window == window; };
    auto found = std::find_if(windows_.begin(), windows_.end(), alike);
    if (found == windows_.end()) {
      found = windows_.insert(windows_.end(), Window{.scores = {.window = window}});
    }
    found->layers += 1;
  }
  const auto layers = static_cast<double>(model.num_layers);
  const auto with_hops = [&](const ServingStep& step) {
    ServingWork work = recorder.Record(step);
    // From stage to stage: as many bytes as an all-reduce of two moves.
    const int64_t bytes = step.tokens() * model.hidden_size * SizeOf(DType::kBf16);
    if (layout.pp > 1) {
      work.messages.push_back({.ranks = 2,
                               .bytes = static_cast<double>(bytes),
                               .count = static_cast<double>(layout.pp - 1)});
    }
    return work;
  };
  one_ = with_hops({.sequences = 1});
  const ServingWork two = with_hops({.sequences = 2});
  const ServingWork mixed = with_hops({.sequences = 1, .prompts = 1, .prompt_tokens = 1});
  const ServingWork longer = with_hops({.sequences = 1, .prompts = 1, .prompt_tokens = 2});
  key_values_ = one_.kv_values / layers;
  score_flops_ = mixed.attention_flops / (2 * layers);
  for (const ServingWork* each : {&two, &mixed, &longer}) RequireAlike(*each);

  prompt_ = longer;
  AddTimes(mixed, -1, prompt_);
  output_ = mixed;
  AddTimes(one_, -1, output_);
  AddTimes(prompt_, -1, output_);
  decode_ = two;
  AddTimes(one_, -1, decode_);
  AddTimes(output_, -1, decode_);
}

void ServingSteps::RequireAlike(const ServingWork& other) const {
  TRIMTAB_ASSERT(other.products.size() == one_.products.size() && other.ops == one_.ops &&
                     other.messages.size() == one_.messages.size(),
                 "steps of {} and {} ops", one_.ops, other.ops);
}

StepRows ServingSteps::RowsOf(int64_t rows, int64_t position, int64_t outputs) const {
  StepRows result = {.outputs = static_cast<double>(outputs)};
  (rows == 1 && outputs == 1 ? result.decodes : result.prompt_rows) = static_cast<double>(rows);
  PagedRows paged;
  paged.sequences.assign(1, {.first_row = 0, .rows = rows, .first_position = position});
  for (const Window& each : windows_) {
    result.keys += each.layers * static_cast<double>(paged.visible_keys(each.scores));
    result.scores += each.layers * static_cast<double>(paged.visible_scores(each.scores));
  }
  return result;
}

StepRows ServingSteps::RowsOf(const StepPlan& plan) const {
  StepRows sum;
  PagedRows paged;
  for (const PlannedSequence& each : plan.sequences) {
    const auto rows = std::ssize(each.tokens);
    (rows == 1 && each.logits == 1 ? sum.decodes : sum.prompt_rows) += static_cast<double>(rows);
    sum.outputs += static_cast<double>(each.logits);
    paged.sequences.push_back({.rows = rows, .first_position = each.first_position});
  }
  for (const Window& each : windows_) {
    sum.keys += each.layers * static_cast<double>(paged.visible_keys(each.scores));
    sum.scores += each.layers * static_cast<double>(paged.visible_scores(each.scores));
  }
  return sum;
}

ServingWork ServingSteps::WorkOf(const StepRows& rows) const {
  ServingWork work = one_;
  AddTimes(decode_, rows.decodes - 1, work);
  AddTimes(prompt_, rows.prompt_rows, work);
  // A step without logits has a head all the same.
  AddTimes(output_, std::max(1.0, rows.outputs) - 1, work);
  work.kv_values = rows.keys * key_values_;
  work.attention_flops = rows.prompt_rows > 0 ? rows.scores * score_flops_ : 0;
  work.all_tokens = rows.rows();
  work.sequences = rows.outputs;
  work.prompt_tokens = rows.prompt_rows;
  return work;
}

}  // namespace trimtab
