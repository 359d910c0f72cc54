// The files that the page is made of, inside the program; the build generates the .cc.
#pragma once

#include <string_view>

namespace trimtab {

/// The text of "page.html", "page.css", "page.js", "vega.js" or a chart's "NAME.json".
std::string_view PageAsset(std::string_view name);

}  // namespace trimtab
