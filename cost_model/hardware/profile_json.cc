// Hardware profiles as JSON. Points of tables are arrays, everything else is named.
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cost_model/hardware/hardware_profile.h"
#include "cost_model/hardware/quantity_json.h"
#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"
#include "engine/config/layout/parallel_config.h"

namespace trimtab {
namespace {

constexpr int64_t kSchemaVersion = 1;
constexpr double kLongest = 1e6;  // seconds of one op
constexpr int64_t kLargestDim = int64_t{1} << 40;
constexpr double kWidestSpread = 100;
constexpr const char* kSpreadTables[] = {"gemm", "attention", "ops", "collectives", "step"};

/// The enumerator called `name` among the first `count`, or -1.
template <typename Enum>
int FindByName(const std::string& name, int count) {
  for (int i = 0; i < count; ++i) {
    if (Name(static_cast<Enum>(i)) == name) return i;
  }
  return -1;
}

/// The rows of a table under `key`: arrays of `columns` positive numbers, the first `integers` of
/// which are whole.
std::vector<std::vector<double>> Rows(StrictObject& object, const std::string& key, size_t columns,
                                      size_t integers, size_t least, Need need) {
  std::vector<std::vector<double>> rows;
  const nlohmann::json* json = object.Find(key, need);
  if (json == nullptr) return rows;
  if (!json->is_array() || json->size() < least) {
    object.Refuse(key, fmt::format("an array of at least {} rows", least));
  }
  for (const nlohmann::json& row : *json) {
    if (!row.is_array() || row.size() != columns) {
      object.Refuse(key, fmt::format("rows of {} numbers", columns));
    }
    std::vector<double> values;
    for (size_t i = 0; i < columns; ++i) {
      const bool whole = i < integers;
      const bool right_type = whole ? row[i].is_number_integer() : row[i].is_number();
      const double value = right_type ? row[i].get<double>() : 0;
      const double largest = whole ? static_cast<double>(kLargestDim) : kLongest;
      // A weight gradient's flag is 0 or 1; every other number is positive.
      if (!right_type || value < 0 || value > largest || (value == 0 && !whole)) {
        object.Refuse(key, fmt::format("positive numbers, the first {} of a row whole", integers));
      }
      values.push_back(value);
    }
    rows.push_back(std::move(values));
  }
  return rows;
}

int64_t Whole(double value) { return static_cast<int64_t>(value); }

void RequirePositive(StrictObject& object, const std::string& key,
                     std::initializer_list<double> v) {
  for (const double value : v) {
    if (value <= 0) object.Refuse(key, "positive sizes");
  }
}

std::vector<BytesPoint> BytesPoints(StrictObject& object, const std::string& key) {
  std::vector<BytesPoint> points;
  for (const auto& row : Rows(object, key, 2, 1, 2, Need::kRequired)) {
    RequirePositive(object, key, {row[0]});
    points.push_back({Whole(row[0]), row[1]});
    if (points.size() > 1 && points.back().bytes <= points[points.size() - 2].bytes) {
      object.Refuse(key, "rows in ascending order of bytes");
    }
  }
  return points;
}

nlohmann::json PointsToJson(const std::vector<BytesPoint>& points) {
  nlohmann::json rows = nlohmann::json::array();
  for (const BytesPoint& point : points) rows.push_back({point.bytes, point.seconds});
  return rows;
}

/// What products are named by in `peak_flops`, `by_precision` and `precisions`.
void RequireRateNames(const nlohmann::json& json, const StrictObject& object) {
  std::vector<std::string_view> names;
  for (const Precision precision : kPrecisions) names.push_back(Name(precision));
  for (const auto& [name, value] : json.items()) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    object.Refuse(name, fmt::format("one of {}", fmt::join(names, ", ")));
  }
}

ModeTables ModeFromJson(const nlohmann::json& json, const std::string& where) {
  ModeTables tables;
  StrictObject object(json, where);
  std::string mode;
  object.Text("mode", mode, Need::kRequired);
  try {
    tables.mode = ParseMode(mode, "mode");
  } catch (const UsageError&) {
    object.Refuse("mode", "ranks x threads, such as \"2x1\"");
  }
  object.Text("source", tables.source, Need::kRequired);
  object.Number("step_factor", tables.step_factor, 0.1, 10, Need::kRequired);
  object.Number("probe_s", tables.probe_s, 0, kLongest);
  object.Number("probe_spread", tables.probe_spread, 0, kWidestSpread);
  if (const nlohmann::json* spread = object.Find("spread")) {
    StrictObject by_table(*spread, object.Where("spread"));
    for (const char* table : kSpreadTables) {
      if (by_table.Find(table) == nullptr) continue;
      by_table.Number(table, tables.spread[table], 0, kWidestSpread);
    }
    by_table.Finish();
  }
  if (const nlohmann::json* precisions = object.Find("precisions")) {
    StrictObject by_name(*precisions, object.Where("precisions"));
    RequireRateNames(*precisions, by_name);
    for (const auto& [precision, factors] : precisions->items()) {
      StrictObject each(*by_name.Find(precision), by_name.Where(precision));
      PrecisionFactors& into = tables.precisions[precision];
      each.Number("gemm", into.gemm, 0.01, 1000, Need::kRequired);
      each.Number("attention", into.attention, 0.01, 1000, Need::kRequired);
      each.Number("ops", into.ops, 0.01, 1000, Need::kRequired);
      each.Finish();
    }
  }
  for (const auto& row : Rows(object, "gemm", 5, 4, 0, Need::kRequired)) {
    RequirePositive(object, "gemm", {row[0], row[1], row[2]});
    tables.gemm.push_back({Whole(row[0]), Whole(row[1]), Whole(row[2]), row[3] != 0, row[4]});
  }
  for (const auto& row : Rows(object, "attention", 5, 3, 0, Need::kRequired)) {
    RequirePositive(object, "attention", {row[0], row[1], row[2]});
    tables.attention.push_back({Whole(row[0]), Whole(row[1]), Whole(row[2]), row[3], row[4]});
  }
  if (const nlohmann::json* ops = object.Find("ops", Need::kRequired)) {
    StrictObject ops_object(*ops, object.Where("ops"));
    for (const auto& [name, points] : ops->items()) {
      const int kind = FindByName<OpKind>(name, kOpKindCount);
      if (kind < 0) ops_object.Refuse(name, "the name of an op");
      tables.ops[static_cast<OpKind>(kind)] = BytesPoints(ops_object, name);
    }
  }
  object.Array("collectives", Need::kRequired, 0, [&](const auto& value, const auto& at) {
    StrictObject entry(value, at);
    std::string name;
    int64_t ranks = 0;
    entry.Text("kind", name, Need::kRequired);
    entry.Integer("ranks", ranks, 2, 1 << 16, Need::kRequired);
    const int kind = FindByName<CollectiveKind>(name, kCollectiveKindCount);
    if (kind < 0) entry.Refuse("kind", "the name of a collective");
    tables.collectives[{static_cast<CollectiveKind>(kind), static_cast<int>(ranks)}] =
        BytesPoints(entry, "points");
    entry.Finish();
  });
  object.Finish();
  return tables;
}

nlohmann::json ModeToJson(const ModeTables& tables) {
  nlohmann::json gemm = nlohmann::json::array();
  for (const GemmPoint& point : tables.gemm) {
    gemm.push_back({point.m, point.n, point.k, point.accumulate ? 1 : 0, point.seconds});
  }
  nlohmann::json attention = nlohmann::json::array();
  for (const AttentionPoint& point : tables.attention) {
    attention.push_back(
        {point.batch_heads, point.sequence, point.head_size, point.forward_s, point.backward_s});
  }
  nlohmann::json ops = nlohmann::json::object();
  for (const auto& [kind, points] : tables.ops) ops[std::string(Name(kind))] = PointsToJson(points);
  nlohmann::json collectives = nlohmann::json::array();
  for (const auto& [key, points] : tables.collectives) {
    collectives.push_back(
        {{"kind", Name(key.first)}, {"ranks", key.second}, {"points", PointsToJson(points)}});
  }
  nlohmann::json precisions = nlohmann::json::object();
  for (const auto& [precision, factors] : tables.precisions) {
    precisions[precision] = {
        {"gemm", factors.gemm}, {"attention", factors.attention}, {"ops", factors.ops}};
  }
  return {{"mode", ToString(tables.mode)},
          {"source", tables.source},
          {"step_factor", tables.step_factor},
          {"probe_s", tables.probe_s},
          {"probe_spread", tables.probe_spread},
          {"spread", tables.spread},
          {"precisions", precisions},
          {"gemm", gemm},
          {"attention", attention},
          {"ops", ops},
          {"collectives", collectives}};
}

struct QuantityField {
  const char* key;
  Quantity HardwareProfile::*member;
  Need need = Need::kRequired;
};
constexpr QuantityField kQuantities[] = {
    {"memory_bytes", &HardwareProfile::memory_bytes},
    {"memory_bandwidth", &HardwareProfile::memory_bandwidth},
    {"bandwidth_efficiency", &HardwareProfile::bandwidth_efficiency},
    {"launch_overhead_s", &HardwareProfile::launch_overhead_s},
    {"link_latency_s", &HardwareProfile::link_latency_s},
    {"link_bandwidth", &HardwareProfile::link_bandwidth},
    {"network_latency_s", &HardwareProfile::network_latency_s},
    {"network_bandwidth", &HardwareProfile::network_bandwidth},
    {"link_efficiency", &HardwareProfile::link_efficiency, Need::kOptional},
    {"network_efficiency", &HardwareProfile::network_efficiency, Need::kOptional},
    {"shared_ports", &HardwareProfile::shared_ports, Need::kOptional},
    {"flash_attention_2", &HardwareProfile::flash_attention_2, Need::kOptional},
    {"power_w", &HardwareProfile::power_w, Need::kOptional},
};

/// `by_precision` takes what stands under that key, where the curve may have one.
EfficiencyCurve CurveFromJson(const nlohmann::json& json, const std::string& where,
                              const nlohmann::json** by_precision = nullptr) {
  EfficiencyCurve curve;
  StrictObject object(json, where);
  std::string origin;
  object.Choice("origin", origin, OriginNames(), Need::kRequired);
  object.Text("source", curve.source, Need::kRequired);
  object.Number("prior", curve.prior, 0, 1);
  curve.origin = ParseOrigin(origin);
  for (const auto& row : Rows(object, "points", 2, 1, 1, Need::kRequired)) {
    RequirePositive(object, "points", {row[0]});
    const int64_t size = Whole(row[0]);
    if (row[1] > 1 || (!curve.points.empty() && size <= curve.points.back().size)) {
      object.Refuse("points", "ascending sizes with efficiencies of at most 1");
    }
    curve.points.push_back({size, row[1]});
  }
  if (by_precision != nullptr) *by_precision = object.Find("by_precision");
  object.Finish();
  return curve;
}

nlohmann::json CurveToJson(const EfficiencyCurve& curve) {
  nlohmann::json points = nlohmann::json::array();
  for (const EfficiencyPoint& point : curve.points)
    points.push_back({point.size, point.efficiency});
  nlohmann::json json = {
      {"points", points}, {"origin", Name(curve.origin)}, {"source", curve.source}};
  if (curve.prior > 0) json["prior"] = curve.prior;
  return json;
}

void ReadGemmEfficiency(StrictObject& object, HardwareProfile& profile) {
  const std::string where = object.Where("gemm_efficiency");
  const nlohmann::json* others = nullptr;
  profile.gemm_efficiency =
      CurveFromJson(*object.Find("gemm_efficiency", Need::kRequired), where, &others);
  if (others == nullptr) return;
  StrictObject by_precision(*others, where + ".by_precision");
  RequireRateNames(*others, by_precision);
  for (const auto& [precision, curve] : others->items()) {
    profile.gemm_efficiency_of[precision] =
        CurveFromJson(*by_precision.Find(precision), by_precision.Where(precision));
  }
}

/// Two curves, or the single number of older profiles for both directions at every length.
void ReadAttentionEfficiency(StrictObject& object, HardwareProfile& profile) {
  if (const nlohmann::json* number = object.Find("attention_efficiency")) {
    const Quantity quantity = QuantityFromJson(*number, object.Where("attention_efficiency"));
    if (quantity.value <= 0) object.Refuse("attention_efficiency", "a value above 0");
    profile.attention_forward = {
        .points = {{1, quantity.value}}, .origin = quantity.origin, .source = quantity.source};
    profile.attention_backward = profile.attention_forward;
    return;
  }
  profile.attention_forward =
      CurveFromJson(*object.Find("attention_forward_efficiency", Need::kRequired),
                    object.Where("attention_forward_efficiency"));
  profile.attention_backward =
      CurveFromJson(*object.Find("attention_backward_efficiency", Need::kRequired),
                    object.Where("attention_backward_efficiency"));
}

}  // namespace

HardwareProfile HardwareProfileFromJson(const nlohmann::json& json, const std::string& where) {
  HardwareProfile profile;
  StrictObject object(json, where);
  int64_t version = 0;
  object.Integer("schema_version", version, kSchemaVersion, kSchemaVersion, Need::kRequired);
  object.Text("name", profile.name, Need::kRequired);
  object.Choice("device", profile.device, kDeviceNames, Need::kRequired);
  object.Text("measured_on", profile.measured_on);
  object.Text("generation", profile.generation);
  object.Integer("multiprocessors", profile.multiprocessors, 0, 1 << 16);
  object.Integer("link_domain", profile.link_domain, 0, 1 << 16);
  object.Boolean("link_reduces", profile.link_reduces);
  if (const nlohmann::json* aliases = object.Find("aliases")) {
    profile.aliases = StringsFromJson(*aliases, object.Where("aliases"));
  }

  const nlohmann::json* peaks = object.Find("peak_flops", Need::kRequired);
  StrictObject peaks_object(*peaks, object.Where("peak_flops"));
  RequireRateNames(*peaks, peaks_object);
  for (const auto& [dtype, value] : peaks->items()) {
    profile.peak_flops[dtype] = QuantityFromJson(value, peaks_object.Where(dtype));
    if (profile.peak_flops[dtype].value < 1) peaks_object.Refuse(dtype, "a value of at least 1");
  }
  peaks_object.Find("fp32", Need::kRequired);
  for (const QuantityField& field : kQuantities) {
    const nlohmann::json* value = object.Find(field.key, field.need);
    if (value == nullptr) continue;
    profile.*field.member = QuantityFromJson(*value, object.Where(field.key));
  }
  for (const char* key :
       {"memory_bandwidth", "bandwidth_efficiency", "link_bandwidth", "network_bandwidth"}) {
    if (json.at(key).at("value").get<double>() <= 0) object.Refuse(key, "a value above 0");
  }
  if (profile.shared_ports.value > 1) object.Refuse("shared_ports", "a value of at most 1");
  ReadGemmEfficiency(object, profile);
  ReadAttentionEfficiency(object, profile);
  object.Array("modes", Need::kOptional, 0, [&](const auto& value, const auto& at) {
    profile.modes.push_back(ModeFromJson(value, at));
  });
  object.Finish();
  return profile;
}

nlohmann::json ToJson(const HardwareProfile& profile) {
  nlohmann::json json = {{"schema_version", kSchemaVersion},
                         {"name", profile.name},
                         {"device", Name(profile.device)},
                         {"measured_on", profile.measured_on},
                         {"aliases", profile.aliases},
                         {"generation", profile.generation},
                         {"multiprocessors", profile.multiprocessors},
                         {"link_domain", profile.link_domain},
                         {"link_reduces", profile.link_reduces}};
  json["peak_flops"] = nlohmann::json::object();
  for (const auto& [dtype, rate] : profile.peak_flops) {
    json["peak_flops"][dtype] = ToJson(rate);
  }
  for (const QuantityField& field : kQuantities) {
    json[field.key] = ToJson(profile.*field.member);
  }
  json["gemm_efficiency"] = CurveToJson(profile.gemm_efficiency);
  for (const auto& [precision, curve] : profile.gemm_efficiency_of) {
    json["gemm_efficiency"]["by_precision"][precision] = CurveToJson(curve);
  }
  json["attention_forward_efficiency"] = CurveToJson(profile.attention_forward);
  json["attention_backward_efficiency"] = CurveToJson(profile.attention_backward);
  json["modes"] = nlohmann::json::array();
  for (const ModeTables& tables : profile.modes) json["modes"].push_back(ModeToJson(tables));
  return json;
}

}  // namespace trimtab
