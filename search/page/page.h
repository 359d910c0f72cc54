// Page: REPORT.html, which stands alone.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trimtab {

/// One file with tables, charts and all that draws them; it fetches nothing. Without scripts the
/// tables still hold every figure. `report` is what ReportJson returns.
std::string ReportHtml(const nlohmann::json& report);

}  // namespace trimtab
