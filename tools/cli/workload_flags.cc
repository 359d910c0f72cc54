#include "tools/cli/workload_flags.h"

#include <algorithm>
#include <limits>

#include "engine/base/count_text.h"
#include "engine/base/error.h"

namespace trimtab {

void WorkloadFlags::Declare(FlagSet& flags) {
  flags_ = &flags;
  flags.Group("Load");
  flags.Text(
      "--workload IN/OUT", workload_,
      {"input/output tokens of a request",
       "As 1000/500. Each a number, uniform:A-B, exponential:MEAN or lognormal:MEDIAN:SIGMA."});
  flags.Text("--trace FILE", trace_,
             {"requests from a JSONL file, instead of --workload",
              "Each line: {\"at_s\", \"input_tokens\", \"output_tokens\", \"shared_tokens\"}."});
  flags.Integer("--requests", requests_, 1, 10'000'000, "requests of the workload");
  flags.Integer("--concurrency", concurrency_, 1, 4096,
                {"closed loop of this many clients", "Each waits for its answer."});
  flags.Positive("--rate", rate_, 1e6, {"open loop of requests per second", "A Poisson process."});
  flags.Integer("--shared-prefix", shared_, 0, LengthDistribution::kMaxLength,
                {"tokens that all prompts begin with", "Such as a system prompt."});
  flags.Integer("--seed", seed_, 0, std::numeric_limits<int64_t>::max(), "random seed");
}

ServiceLoad WorkloadFlags::Load() const {
  if (!trace_.empty()) {
    if (flags_->Given("--workload")) {
      throw UsageError("--trace contradicts --workload: the trace says how long requests are");
    }
    if (rate_ > 0) throw UsageError("--trace contradicts --rate: the trace says when they come");
    if (shared_ > 0) {
      throw UsageError("--trace contradicts --shared-prefix: the trace says what prompts share");
    }
    return {.requests = ReadTrace(trace_), .concurrency = concurrency_};
  }
  if ((concurrency_ > 0) == (rate_ > 0)) {
    throw UsageError("expected either --concurrency (closed loop) or --rate (open loop)");
  }
  ServiceLoad load = {.requests = DrawRequests(workload_, requests_, rate_, seed()),
                      .concurrency = concurrency_};
  const int64_t longest =
      std::ranges::max(load.requests, {}, &LoadRequest::prompt_tokens).prompt_tokens;
  if (shared_ > longest) {
    throw UsageError(fmt::format("--shared-prefix: {} tokens; the longest prompt of {} has {}",
                                 shared_, workload_, longest));
  }
  ShareBeginnings(shared_, load.requests);
  return load;
}

std::string WorkloadFlags::Describe() const {
  std::string lengths = trace_.empty()
                            ? fmt::format("{} tokens, {}", workload_, Counted(requests_, "request"))
                            : trace_;
  if (shared_ > 0) lengths += fmt::format(", {} tokens shared", shared_);
  if (concurrency_ > 0) return fmt::format("{}, {}", lengths, Counted(concurrency_, "client"));
  return rate_ > 0 ? fmt::format("{}, {:g} a second", lengths, rate_) : lengths;
}

}  // namespace trimtab
