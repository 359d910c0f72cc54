// ServingSteps: what any step of one model in one layout does, from four recordings of it.
//
// All but attention is linear in the rows of a step, in those of prompts and in those whose logits
// are asked; attention is linear in the keys that it reads and the scores that it computes, which
// the engine's own formula counts. So a step costs nanoseconds to describe, and is still what the
// engine reports.
#pragma once

#include <vector>

#include "cost_model/serving/serving_work.h"
#include "engine/infer/scheduler/step_plan.h"
#include "engine/ops/attention/paged_attention.h"

namespace trimtab {

/// The rows of a step, added up, or of many steps; of an average one they are no whole numbers.
struct StepRows {
  double decodes = 0;        // that bring a sequence on by a token
  double proposed = 0;       // beside these, that check tokens which were proposed
  double prompt_rows = 0;    // of pieces of prompts
  double outputs = 0;        // whose logits are asked
  double keys = 0;           // that attention reads, of one head, over all layers
  double scores = 0;         // that it computes, likewise
  double decode_scores = 0;  // of these, of decoding and proposed rows
  double filled = 0;         // rows of nobody, up to a multiple that the layout needs
  double more_outputs = 0;   // likewise

  double rows() const { return decodes + proposed + prompt_rows + filled; }
  StepRows& operator+=(const StepRows& other);
  StepRows operator/(double steps) const;
};

class ServingSteps {
 public:
  /// `recorder` is of the model and the layout.
  ServingSteps(const ModelConfig& model, const ServingLayout& layout, ServingRecorder& recorder);

  /// A run of `rows` tokens of one sequence, behind `position` others, with so many outputs. A run
  /// whose tokens all have outputs goes on, by one token and those that were proposed; others are
  /// pieces of prompts.
  StepRows RowsOf(int64_t rows, int64_t position, int64_t outputs) const;
  /// A run of at most `going_on` rows with an output goes on as well: a draft model's, which is
  /// given the last of its tokens and the one that the other model chose. Of a whole step: only
  /// here is it known how many rows fill it up.
  StepRows RowsOf(const StepPlan& plan, int64_t going_on = 1) const;
  /// The sum of `steps` steps of one sequence that goes on, the first one behind `position` others.
  StepRows RowsOfDecoding(int64_t steps, int64_t position) const;
  ServingWork WorkOf(const StepRows& rows) const;
  /// The same into `work`, whose memory is used again.
  void DescribeWork(const StepRows& rows, ServingWork& work) const;

 private:
  /// Layers that see equally far.
  struct Window {
    ScoreOptions scores;
    double layers = 0;
  };
  void RequireAlike(const ServingWork& other) const;
  /// What one row makes of `from`, of which `to` has as many more as the least step.
  ServingWork Change(const ServingWork& from, const ServingWork& to) const;

  /// Keys and scores that the rows see, added to `sum`.
  void AddSeen(const PagedSegments& rows, StepRows& sum) const;

  int64_t multiple_;  // of rows
  std::vector<Window> windows_;
  double least_ = 1;         // decoding rows of the least step whose rows are shared out evenly
  ServingWork one_;          // that step
  ServingWork decode_;       // what another decoding row adds to it,
  ServingWork prompt_;       // a row of a prompt,
  ServingWork output_;       // and a row whose logits are asked
  double key_values_ = 0;    // elements that are read per key of a head and layer
  double score_flops_ = 0;   // of a score of a head and layer
  double decode_flops_ = 0;  // likewise of decoding rows, where they count
};

}  // namespace trimtab
