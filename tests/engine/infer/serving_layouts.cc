#include "tests/engine/infer/serving_layouts.h"

#include <fmt/format.h>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr int64_t kRanks = 4;

/// What tensor parallel ranks may do with rows and experts.
constexpr const char* kSharings[] = {"",
                                     ",sp=1",
                                     ",sp=1,ep=2",
                                     ",sp=1,ep=4",
                                     ",sp=1,etp=2",
                                     ",sp=1,etp=4",
                                     ",sp=1,ep=2,etp=2",
                                     ",sp=1,ep=2,dispatch=allgather",
                                     ",sp=1,ep=4,dispatch=allgather",
                                     ",sp=1,etp=2,dispatch=allgather",
                                     ",sp=1,ep=2,etp=2,dispatch=allgather"};

}  // namespace

std::vector<ServingConfig> InEveryLayout(ServingConfig config) {
  std::vector<ServingConfig> all;
  const auto add = [&](const std::string& layout) {
    config.layout = ParseLayout(layout, 0);
    try {
      all.push_back(ResolveServing(config));
    } catch (const InfeasibleError&) {
      // Not every model can be cut so.
    }
  };
  for (int64_t tp = 1; tp <= kRanks; ++tp) {
    for (int64_t pp = 1; tp * pp <= kRanks; ++pp) {
      for (int64_t dp = 1; tp * pp * dp <= kRanks; ++dp) {
        for (const char* sharing : kSharings) {
          if (tp == 1 && *sharing != 0) break;
          add(fmt::format("tp={},pp={},dp={}{}", tp, pp, dp, sharing));
        }
      }
    }
  }
  TRIMTAB_ASSERT(all.size() > 1, "{} is served in {} layouts", config.model.name, all.size());
  return all;
}

}  // namespace trimtab
