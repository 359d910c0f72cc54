#include "search/page/layout_words.h"

#include <vector>

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/config/layout/parallel_config.h"
#include "search/page/html.h"

namespace trimtab {
namespace {

std::string DataParallelWords(const ParallelConfig& layout) {
  static const std::vector<std::string> kSharded = {"", " with sharded optimizer",
                                                    " with sharded optimizer and gradients",
                                                    " with sharded optimizer, gradients, weights"};
  const auto stage = static_cast<size_t>(layout.zero);
  return fmt::format("{}-way data parallel{}", layout.dp,
                     stage < kSharded.size() ? kSharded[stage] : "");
}

std::vector<std::string> ParallelWords(const ParallelConfig& layout) {
  std::vector<std::string> words;
  if (layout.tp > 1) {
    words.push_back(fmt::format("{}-way tensor parallel{}", layout.tp,
                                layout.sequence_parallel ? " with sequence parallel" : ""));
  }
  if (layout.cp > 1) words.push_back(fmt::format("{}-way context parallel", layout.cp));
  if (layout.pp > 1) words.push_back(fmt::format("{}-stage pipeline", layout.pp));
  if (layout.ep > 1) words.push_back(fmt::format("{}-way expert parallel", layout.ep));
  if (layout.dp > 1) words.push_back(DataParallelWords(layout));
  if (words.empty()) words.emplace_back("a single rank");
  return words;
}

}  // namespace

std::string LayoutWords(const std::string& layout_text) {
  ParallelConfig layout;
  try {
    layout = ParseLayout(layout_text, 0);
  } catch (const Error&) {
    return layout_text;  // of a newer version; its own words are the best there are
  }
  std::string words;
  for (const std::string& each : ParallelWords(layout)) words += each + ", ";
  words += fmt::format("micro batch {}, ", layout.micro_batch);
  if (layout.recompute != StageRecompute()) {
    words += fmt::format("recompute {}, ", ToString(layout.recompute));
  }
  words += Name(layout.numerics.precision);
  if (layout.numerics.master != MasterWeights::kFp32) {
    words += fmt::format(" with {} masters", Name(layout.numerics.master));
  }
  if (layout.numerics.moments != DType::kF32) {
    words += fmt::format(", {} moments", Name(layout.numerics.moments));
  }
  if (layout.numerics.gradients != DType::kF32) {
    words += fmt::format(", {} gradients", Name(layout.numerics.gradients));
  }
  return words;
}

std::string PlaceWords(DeviceKind device, int64_t ranks, int64_t threads) {
  if (device != DeviceKind::kCpu) return Counted(ranks, "GPU");
  return Counted(ranks, "rank") + " \u00d7 " + Counted(threads, "thread");
}

DeviceKind DeviceOf(const nlohmann::json& problem) {
  return FindNamed(kDeviceNames, problem["cluster"]["device"].get<std::string>()).value();
}

}  // namespace trimtab
