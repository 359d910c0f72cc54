#include "cost_model/serving/serving_steps.h"

#include <algorithm>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/units.h"

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

/// Of steps of a multiple of so many rows each rank has as many, and each expert too.
int64_t EvenRows(const ModelConfig& model, const ServingLayout& layout) {
  const MoeConfig& moe = model.moe;
  if (!moe.used() || !layout.sequence_parallel) return layout.row_multiple();
  return layout.row_multiple() * moe.num_experts / std::gcd(moe.num_experts, moe.router_topk);
}

}  // namespace

StepRows& StepRows::operator+=(const StepRows& other) {
  decodes += other.decodes;
  proposed += other.proposed;
  prompt_rows += other.prompt_rows;
  outputs += other.outputs;
  keys += other.keys;
  scores += other.scores;
  decode_scores += other.decode_scores;
  filled += other.filled;
  more_outputs += other.more_outputs;
  return *this;
}

StepRows StepRows::operator/(double steps) const {
  return {decodes / steps,       proposed / steps, prompt_rows / steps,
          outputs / steps,       keys / steps,     scores / steps,
          decode_scores / steps, filled / steps,   more_outputs / steps};
}

ServingSteps::ServingSteps(const ModelConfig& model, const ServingLayout& layout,
                           ServingRecorder& recorder)
    : multiple_(layout.row_multiple()) {
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const int64_t window = model.window(layer);
    const auto alike = [window](const Window& each) { return each.scores.window == window; };
    auto found = std::find_if(windows_.begin(), windows_.end(), alike);
    if (found == windows_.end()) {
      found = windows_.insert(windows_.end(), Window{.scores = {.window = window}});
    }
    found->layers += 1;
  }
  const auto with_hops = [&](const ServingStep& step) {
    ServingWork work = recorder.Record(step);
    // From stage to stage each rank sends the rows that it has.
    const int64_t bytes = step.tokens() / multiple_ * model.hidden_size * SizeOf(DType::kBf16);
    if (layout.pp > 1) {
      work.messages.push_back({.kind = CollectiveKind::kSend,
                               .ranks = 2,
                               .bytes = static_cast<double>(bytes),
                               .count = static_cast<double>(layout.pp - 1)});
    }
    return work;
  };
  const int64_t rows = EvenRows(model, layout);
  one_ = with_hops({.sequences = rows});
  const ServingWork two = with_hops({.sequences = 2 * rows});
  const ServingWork mixed = with_hops({.sequences = rows, .prompts = rows, .prompt_tokens = 1});
  const ServingWork longer = with_hops({.sequences = rows, .prompts = rows, .prompt_tokens = 2});
  least_ = static_cast<double>(rows);
  const double scores = least_ * static_cast<double>(model.num_layers);
  key_values_ = one_.kv_values / scores;
  decode_flops_ = one_.decode_flops / scores;
  // Where decoding rows count apart, half of the rows are not in it.
  score_flops_ = mixed.attention_flops / ((decode_flops_ > 0 ? 1 : 2) * scores);
  for (const ServingWork* each : {&two, &mixed, &longer}) RequireAlike(*each);

  prompt_ = Change(mixed, longer);
  output_ = Change(one_, mixed);
  AddTimes(prompt_, -1, output_);
  decode_ = Change(one_, two);
  AddTimes(output_, -1, decode_);
}

ServingWork ServingSteps::Change(const ServingWork& from, const ServingWork& to) const {
  ServingWork change = to;
  AddTimes(from, -1, change);
  AddTimes(change, 1 / least_ - 1, change);
  return change;
}

void ServingSteps::RequireAlike(const ServingWork& other) const {
  TRIMTAB_ASSERT(other.products.size() == one_.products.size() && other.ops == one_.ops &&
                     other.messages.size() == one_.messages.size(),
                 "steps of {} and {} ops", one_.ops, other.ops);
}

StepRows ServingSteps::RowsOf(int64_t rows, int64_t position, int64_t outputs) const {
  StepRows result = {.outputs = static_cast<double>(outputs)};
  const bool goes_on = rows == outputs;
  (goes_on ? result.proposed : result.prompt_rows) = static_cast<double>(rows - (goes_on ? 1 : 0));
  result.decodes = goes_on ? 1 : 0;
  PagedSegments paged;
  paged.segments.assign(1, {.first_row = 0, .rows = rows, .first_position = position});
  AddSeen(paged, result);
  if (goes_on) result.decode_scores = result.scores;
  return result;
}

StepRows ServingSteps::RowsOfDecoding(int64_t steps, int64_t position) const {
  StepRows sum = RowsOf(steps, position, steps);
  sum.decodes = static_cast<double>(steps);
  sum.proposed = 0;
  sum.keys = sum.scores;  // each row alone reads as many keys as it has scores
  sum.decode_scores = sum.scores;
  return sum;
}

StepRows ServingSteps::RowsOf(const StepPlan& plan, int64_t going_on) const {
  StepRows sum;
  PagedSegments one;
  one.segments.resize(1);
  for (const PlannedSequence& each : plan.sequences) {
    const auto rows = std::ssize(each.tokens);
    const bool goes_on = rows == each.logits || (rows <= going_on && each.logits == 1);
    (goes_on ? sum.proposed : sum.prompt_rows) += static_cast<double>(rows - (goes_on ? 1 : 0));
    sum.decodes += goes_on ? 1 : 0;
    sum.outputs += static_cast<double>(each.logits);
    one.segments.front() = {.rows = rows, .first_position = each.first_position};
    const double before = sum.scores;
    AddSeen(one, sum);
    if (goes_on) sum.decode_scores += sum.scores - before;
  }
  const int64_t rows = plan.rows();
  if (const int64_t more = RoundUp(rows, multiple_) - rows; more > 0) {
    sum.filled = static_cast<double>(more);
    one.segments.front() = {.rows = more};
    AddSeen(one, sum);
  }
  const int64_t outputs = plan.logit_rows();
  sum.more_outputs = static_cast<double>(RoundUp(outputs, multiple_) - outputs);
  return sum;
}

void ServingSteps::AddSeen(const PagedSegments& rows, StepRows& sum) const {
  for (const Window& each : windows_) {
    sum.keys += each.layers * static_cast<double>(rows.visible_keys(each.scores));
    sum.scores += each.layers * static_cast<double>(rows.visible_scores(each.scores));
  }
}

ServingWork ServingSteps::WorkOf(const StepRows& rows) const {
  ServingWork work;
  DescribeWork(rows, work);
  return work;
}

void ServingSteps::DescribeWork(const StepRows& rows, ServingWork& work) const {
  work = one_;
  AddTimes(decode_, rows.decodes + rows.proposed - least_, work);
  AddTimes(prompt_, rows.prompt_rows + rows.filled, work);
  // A step without logits has a head all the same.
  const double outputs = rows.outputs + rows.more_outputs;
  AddTimes(output_, std::max(static_cast<double>(multiple_), outputs) - least_, work);
  work.kv_values = rows.keys * key_values_;
  const double scores = rows.scores - (decode_flops_ > 0 ? rows.decode_scores : 0);
  work.attention_flops = rows.prompt_rows + rows.proposed > 0 ? scores * score_flops_ : 0;
  work.decode_flops = rows.decode_scores * decode_flops_;
  work.all_tokens = rows.rows();
  work.sequences = rows.outputs;
  work.prompt_tokens = rows.prompt_rows;
}

}  // namespace trimtab
