#include <nlohmann/json.hpp>

#include "search/page/chart.h"
#include "search/page/page.h"

namespace trimtab {

std::string AccuracyHtml(const nlohmann::json& validation) {
  nlohmann::json rows = nlohmann::json::array();
  for (const nlohmann::json& row : validation["rows"]) {
    if (row.contains("step_time_error")) rows.push_back(row);
  }
  const Chart chart = {
      .name = "accuracy",
      .title = "Predicted and published speed",
      .caption = "A point for each published run; on the dashed line they are the same.",
      .data = {{.name = "rows",
                .columns = {{"id", "run"},
                            {"stack", "software"},
                            {"layout", "layout", Shown::kLayout},
                            {"tokens_per_s_per_gpu", "published tokens/s a GPU", Shown::kFigure},
                            {"predicted_tokens_per_s_per_gpu", "predicted", Shown::kFigure},
                            {"step_time_error", "step time error", Shown::kSignedPercent}},
                .rows = std::move(rows)}}};
  return PageHtml("predictions beside published runs", ChartHtml(chart));
}

}  // namespace trimtab
