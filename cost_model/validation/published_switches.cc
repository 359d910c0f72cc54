#include "cost_model/validation/published_switches.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/plain_name.h"

namespace trimtab {
namespace {

/// Without a compiler every small op between products is a kernel of its own, which moves its bytes
/// by itself and is launched from Python, some 30 in a layer.
void SetCompiled(bool compiled, SoftwareStack& stack) {
  if (stack.compiled == compiled) return;
  constexpr double kTraffic = 1.36;  // what is expected of stacks without one, against those with
  constexpr double kLaunches = 8;
  stack.memory_traffic.value *= compiled ? 1 / kTraffic : kTraffic;
  stack.host_layer_s.value *= compiled ? 1 / kLaunches : kLaunches;
  stack.compiled = compiled;
}

/// Pieces of a tensor-parallel message travel beside the product that makes or needs them; the
/// first one, and what the product is too short for, stay exposed.
void OverlapTensorParallel(SoftwareStack& stack) {
  constexpr double kExposed = 0.4;
  stack.tp_exposed.value *= kExposed;
}

/// Scales for each row and column ask for other kernels than one scale for a matrix does: slower
/// ones, as runs say that were published with either.
void ScaleByRows(SoftwareStack& stack) {
  constexpr double kSpeed = 0.7;
  stack.fp8_compute.value *= kSpeed;
}

/// torchtitan's recomputation by op (`_save_list` in its source): of each layer it keeps what
/// attention returns, every other product, and what is reduced over tensor-parallel ranks. Of a
/// compiled layer only what the backward pass asks for is kept, which the last product is not.
void RecomputeByOp(const PublishedRun& run, SoftwareStack& stack) {
  const PublishedModel& model = run.model;
  const auto hidden = static_cast<double>(model.hidden);
  const auto head = static_cast<double>(model.HeadSize());
  const double queries = static_cast<double>(model.heads) * head;
  const double keys = static_cast<double>(model.KvHeads()) * head;
  const auto ffn = static_cast<double>(model.ffn);
  const auto ranks = static_cast<double>(run.layout.tp);
  // By their width beside the hidden one: q k v o, up (two of swiglu), down.
  std::vector<double> products = {queries, keys, keys, queries, ffn, ffn};
  if (model.gated()) products.push_back(ffn);
  constexpr size_t kAttentionOutput = 3;
  double all = static_cast<double>(model.sequence) * queries / hidden;  // causal attention's
  double again = 0;
  double kept = queries / ranks;          // values of a token on a rank: what attention returns
  if (ranks > 1) kept += hidden / ranks;  // its output, reduced and scattered
  for (size_t i = 0; i < products.size(); ++i) {
    all += products[i];
    if (i + 1 == products.size()) break;  // nobody asks for it again
    const bool reduced = i == kAttentionOutput && ranks > 1;
    if (i % 2 == 0) {
      kept += products[i] / ranks;
    } else if (!reduced) {
      again += products[i];
    }
  }
  const bool last_is_listed = products.size() % 2 == 1;
  if (!stack.compiled && last_is_listed) kept += hidden;
  if (!stack.compiled && ranks > 1) kept += hidden / ranks;
  constexpr double kSixteenBits = 2;
  stack.recompute.value = again / all;
  stack.kept_bytes.value = kSixteenBits * kept;
}

/// Tokens go once to each node that has experts of theirs: DeepSeek-V3, arXiv:2412.19437, 3.2.2.
void SendOncePerNode(SoftwareStack& stack) { stack.tokens_once_per_node = true; }

/// Another micro batch's passes hide most of what the network needs for tokens.
void OverlapExperts(SoftwareStack& stack) {
  constexpr double kExposed = 0.3;
  stack.ep_exposed.value *= kExposed;
}

/// Words of a row, as a plain name, and what they say. The first that is found decides among rows
/// that contain each other's words.
struct NotedSwitch {
  std::string_view words;
  void (*apply)(SoftwareStack&);
};
constexpr NotedSwitch kCompilers[] = {
    {"notorchcompile", [](SoftwareStack& stack) { SetCompiled(false, stack); }},
    {"torchcompile", [](SoftwareStack& stack) { SetCompiled(true, stack); }},
};
constexpr NotedSwitch kOthers[] = {
    {"asynctp", OverlapTensorParallel}, {"rowwise", ScaleByRows},      {"deepep", SendOncePerNode},
    {"haillm", SendOncePerNode},        {"dualpipe", SendOncePerNode},
};

/// What is searched for such words.
std::vector<std::string> WordsOf(const PublishedRun& run) {
  return PlainWords(fmt::format("{}; {}; {}; {}", run.framework, run.notes, run.precision_detail,
                                run.layout.schedule));
}

}  // namespace

bool RecomputesByOp(const PublishedRun& run) {
  const bool dense = run.model.experts == 0;  // products of experts are grouped
  return dense && run.recompute == "selective" &&
         run.recompute_detail.find("per-op") != std::string::npos;
}

void ApplySwitches(const PublishedRun& run, SoftwareStack& stack) {
  if (run.cuda_graphs == "full_iteration") {  // asks the host for nothing
    stack.dispatch_s.value = 0;
    stack.expert_launch_s.value = 0;
    stack.host_layer_s.value = 0;
  } else if (run.cuda_graphs == "transformer_engine") {
    stack.host_layer_s.value = 0;  // graphs of all but the experts
    stack.dispatch_s.value *= 0.5;
  }
  if (!run.token_dispatcher.empty()) SendOncePerNode(stack);
  const std::vector<std::string> words = WordsOf(run);
  const auto notes = [&](const NotedSwitch& each) {
    return FindPlainName(words, each.words) < words.size();
  };
  const auto* const compiler = std::ranges::find_if(kCompilers, notes);
  if (compiler != std::end(kCompilers)) compiler->apply(stack);
  const bool dual_pipe = FindPlainName(words, "dualpipe") < words.size();
  if (run.experts_overlapped || dual_pipe) OverlapExperts(stack);
  for (const NotedSwitch& each : kOthers) {
    if (notes(each)) each.apply(stack);
  }
  if (RecomputesByOp(run)) RecomputeByOp(run, stack);
}

}  // namespace trimtab
