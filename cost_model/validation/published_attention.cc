#include "cost_model/validation/published_attention.h"

#include <algorithm>
#include <vector>

#include "cost_model/validation/published_words.h"
#include "engine/base/error.h"
#include "engine/base/plain_name.h"
#include "engine/config/json/text_values.h"

namespace trimtab {
namespace {

/// Words that say nothing else than softmax attention.
constexpr std::string_view kPlainWords[] = {
    "gqa",     "mha",    "mqa",     "grouped",   "query",          "multi",     "multihead",
    "head",    "full",   "causal",  "attention", "dense",          "standard",  "self",
    "softmax", "global", "vanilla", "flash",     "flashattention", "flashattn", "sdpa",
    "none",    "default"};
/// Words beside a window.
constexpr std::string_view kWindowWords[] = {"sliding", "window", "windowed", "swa",
                                             "local",   "tokens", "of",       "learned",
                                             "sinks",   "layers", "and",      "with"};
/// Every second layer has none.
constexpr std::string_view kAlternatingWords[] = {"alternating", "alternate", "interleaved"};

/// Words that name a kernel; the first that is found counts. Products and passes over scores are
/// what is left without a fused one.
constexpr Meaning kKernelWords[] = {
    {"noflash", "unfused"},
    {"noflashattention", "unfused"},
    {"noflashattn", "unfused"},
    {"withoutflash", "unfused"},
    {"withoutflashattention", "unfused"},
    {"withoutflashattn", "unfused"},
    {"eagerattention", "unfused"},
    {"unfusedattention", "unfused"},
    {"naiveattention", "unfused"},
    {"cudnnattention", "cudnn"},
    {"cudnnflashattention", "cudnn"},
    {"cudnnfusedattention", "cudnn"},
    {"flashattention3", "cudnn"},
    {"flashattentionv3", "cudnn"},
    {"flashattn3", "cudnn"},
    {"fa3", "cudnn"},
    {"flashattention2", "flash2"},
    {"flashattentionv2", "flash2"},
    {"flashattn2", "flash2"},
    {"fa2", "flash2"},
    {"flashattention", "fused"},
    {"flashattn", "fused"},
    {"sdpa", "fused"},
    {"scaleddotproductattention", "fused"},
    {"xformers", "fused"},
    {"memoryefficientattention", "fused"},
};

bool IsAmong(std::string_view word, std::span<const std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

}  // namespace

std::optional<AttentionSpan> SpanOf(const PublishedRun& run) {
  AttentionSpan span;
  bool windowed = false;
  for (const std::string& word : PlainWords(run.model.attention)) {
    int64_t number = 0;
    if (ParseInteger(word, number)) {
      if (span.window != 0) return std::nullopt;
      span.window = number;
    } else if (IsAmong(word, kAlternatingWords)) {
      span.period = 2;
    } else if (IsAmong(word, kWindowWords)) {
      windowed = true;
    } else if (!IsAmong(word, kPlainWords)) {
      return std::nullopt;
    }
  }
  const bool limited = windowed || span.period > 0;
  if (limited && span.window == 0) return std::nullopt;
  if (!limited || span.window >= run.model.sequence) return AttentionSpan{};
  return span;
}

std::string ApplyKernel(const PublishedRun& run, double release, SoftwareStack& stack) {
  constexpr double kPyTorch2 = 2023.2;  // in March
  // In July. It is twice as fast as the first: arXiv:2307.08691, figures 4 to 6.
  constexpr double kFlashAttention2 = 2023.5;
  constexpr double kFirstFlashAttention = 0.5;
  const AttentionKernel usual = stack.attention_kernel;
  const std::string text = run.framework + "; " + run.notes + "; " + run.model.attention;
  const std::string told = MeaningOf(text, kKernelWords).value_or("");
  if (told == "unfused") stack.attention_kernel = AttentionKernel::kUnfused;
  if (told == "cudnn") stack.attention_kernel = AttentionKernel::kCudnn;
  if (told == "flash2") stack.attention_kernel = AttentionKernel::kFlash2;
  if (told == "fused" && usual == AttentionKernel::kUnfused) {
    stack.attention_kernel = AttentionKernel::kFlash2;
    if (release < kFlashAttention2) stack.attention.value *= kFirstFlashAttention;
  }
  if (told.empty() && usual == AttentionKernel::kFlash2 && release < kPyTorch2) {
    stack.attention_kernel = AttentionKernel::kUnfused;
    return "attention is not fused, before PyTorch 2";
  }
  if (stack.attention_kernel == usual) return "";
  return fmt::format("attention as the row says: {}", Name(stack.attention_kernel));
}

}  // namespace trimtab
