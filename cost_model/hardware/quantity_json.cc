#include "cost_model/hardware/quantity_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"

namespace trimtab {
namespace {

constexpr double kLargest = 1e30;

}  // namespace

const std::vector<std::string>& OriginNames() {
  static const std::vector<std::string> names = {"datasheet", "published", "measured", "modelled",
                                                 "fitted"};
  return names;
}

Origin ParseOrigin(const std::string& name) {
  const auto found = std::find(OriginNames().begin(), OriginNames().end(), name);
  TRIMTAB_ASSERT(found != OriginNames().end(), "'{}' is no origin", name);
  return static_cast<Origin>(found - OriginNames().begin());
}

std::string_view Name(Origin origin) { return OriginNames()[static_cast<size_t>(origin)]; }

Quantity QuantityFromJson(const nlohmann::json& json, const std::string& where) {
  Quantity quantity;
  std::string origin;
  StrictObject object(json, where);
  object.Number("value", quantity.value, 0, kLargest, Need::kRequired);
  object.Choice("origin", origin, OriginNames(), Need::kRequired);
  object.Text("source", quantity.source, Need::kRequired);
  object.Number("prior", quantity.prior, 0, kLargest);
  object.Finish();
  quantity.origin = ParseOrigin(origin);
  return quantity;
}

nlohmann::json ToJson(const Quantity& quantity) {
  nlohmann::json json = {
      {"value", quantity.value}, {"origin", Name(quantity.origin)}, {"source", quantity.source}};
  if (quantity.prior > 0) json["prior"] = quantity.prior;
  return json;
}

std::vector<std::string> StringsFromJson(const nlohmann::json& json, const std::string& where) {
  const bool all_texts =
      json.is_array() &&
      std::all_of(json.begin(), json.end(), [](const auto& i) { return i.is_string(); });
  if (!all_texts) {
    throw InputError(
        fmt::format("{}: expected a list of strings, got {}", where, DescribeJson(json)));
  }
  return json.get<std::vector<std::string>>();
}

}  // namespace trimtab
