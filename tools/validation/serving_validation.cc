#include "tools/validation/serving_validation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "cost_model/validation/accuracy.h"
#include "engine/base/error.h"
#include "tools/cli/table.h"
#include "tools/validation/skipped_rows.h"

namespace trimtab {
namespace {

/// Cases that fit, with their errors: of time per token, or of tokens/s.
struct Scored {
  const ServingCase* of = nullptr;
  double error = 0;
};

std::vector<Scored> Score(const ServingCases& taken, const ServingNumbers& numbers) {
  std::vector<Scored> scored;
  for (const ServingCase& each : taken.cases) {
    if (each.plan.fits) scored.push_back({&each, ErrorOf(each, numbers)});
  }
  return scored;
}

ErrorSummary ErrorsWhere(const std::vector<Scored>& rows,
                         const std::function<bool(const ServingCase&)>& holds) {
  std::vector<double> errors;
  for (const Scored& each : rows) {
    if (holds(*each.of)) errors.push_back(each.error);
  }
  return SummarizeErrors(std::move(errors));
}

ErrorSummary ErrorsOf(const std::vector<Scored>& rows, ServingKind kind) {
  return ErrorsWhere(rows, [kind](const ServingCase& each) { return each.row.kind == kind; });
}

nlohmann::json ErrorsJson(const std::vector<Scored>& rows) {
  const auto any = [](const ServingCase&) { return true; };
  const auto dense = [](const ServingCase& each) { return !each.row.model.moe.used(); };
  const auto experts = [](const ServingCase& each) { return each.row.model.moe.used(); };
  return {{"all_error", ToJson(ErrorsWhere(rows, any))},
          {"tpot_error", ToJson(ErrorsOf(rows, ServingKind::kServed))},
          {"saturated_throughput_error", ToJson(ErrorsOf(rows, ServingKind::kSaturated))},
          {"static_batch_error", ToJson(ErrorsOf(rows, ServingKind::kStaticBatch))},
          {"dense_error", ToJson(ErrorsWhere(rows, dense))},
          {"experts_error", ToJson(ErrorsWhere(rows, experts))}};
}

/// Decisions about memory: every published row did run.
struct Decisions {
  int64_t rows = 0;
  int64_t fit = 0;
  int64_t waited = 0;        // rows that were measured to wait for room
  int64_t both = 0;          // and are predicted to
  int64_t false_alarms = 0;  // predicted to wait, and did not
};

Decisions DecisionsOf(const ServingCases& taken, const ServingNumbers& numbers) {
  Decisions decisions;
  for (const ServingCase& each : taken.cases) {
    ++decisions.rows;
    if (!each.plan.fits) continue;
    ++decisions.fit;
    if (each.row.kind != ServingKind::kServed) continue;
    const bool waited = WaitedForRoom(each, numbers.gpu(each.profile->generation),
                                      numbers.engine(each.engine->name));
    decisions.waited += waited ? 1 : 0;
    decisions.both += waited && each.plan.waits_for_room ? 1 : 0;
    decisions.false_alarms += !waited && each.plan.waits_for_room ? 1 : 0;
  }
  return decisions;
}

using NameOf = std::function<std::string(const ServingCase&)>;
struct Grouping {
  const char* key;
  NameOf name;
};
const std::vector<Grouping>& Groupings() {
  static const std::vector<Grouping> groupings = {
      {"engine", [](const ServingCase& each) { return each.engine->name; }},
      {"gpu", [](const ServingCase& each) { return each.row.gpu; }},
      {"model", [](const ServingCase& each) { return each.row.model_name; }},
  };
  return groupings;
}

std::map<std::string, std::vector<Scored>> By(const std::vector<Scored>& rows, const NameOf& name) {
  std::map<std::string, std::vector<Scored>> groups;
  for (const Scored& each : rows) groups[name(*each.of)].push_back(each);
  return groups;
}

nlohmann::json BreakdownJson(const ServingBreakdown& parts) {
  return {{"products", parts.dense_s},    {"experts", parts.experts_s},
          {"head", parts.head_s},         {"attention", parts.attention_s},
          {"messages", parts.messages_s}, {"other_ops", parts.other_s},
          {"gaps", parts.gaps_s},         {"prompt_launches", parts.prompt_floor_s},
          {"host", parts.host_s}};
}

nlohmann::json RowJson(const ServingCase& of, const ServingNumbers& numbers) {
  const PublishedServing& row = of.row;
  nlohmann::json json = {{"id", row.id},
                         {"kind", Name(row.kind)},
                         {"group", row.Group()},
                         {"engine", of.engine->name},
                         {"gpu", row.gpu},
                         {"model", row.model_name},
                         {"assumptions", of.assumptions},
                         {"weight_bytes_per_gpu", of.footprint.weight_bytes},
                         {"kv_bytes_per_token_and_gpu", of.footprint.kv_bytes_per_token},
                         {"room_tokens", of.plan.room_tokens},
                         {"fits", of.plan.fits}};
  if (!of.plan.fits) return json;
  const ServingGpu& gpu = numbers.gpu(of.profile->generation);
  const ServingEngine& engine = numbers.engine(of.engine->name);
  const ServingBreakdown parts = PriceCase(of, gpu, engine);
  json["running"] = of.plan.running;
  json["waits_for_room"] = of.plan.waits_for_room;
  json["waits_for_steps"] = of.plan.waits_for_steps;
  json["breakdown_s"] = BreakdownJson(parts);
  json["error"] = ErrorOf(of, numbers);
  if (row.kind == ServingKind::kServed) {
    json["tpot_s"] = row.tpot_s;
    json["predicted_tpot_s"] = parts.seconds();
    json["waited_for_room"] = WaitedForRoom(of, gpu, engine);
  } else if (row.output_tokens_per_s > 0) {
    json["output_tokens_per_s"] = row.output_tokens_per_s;
    json["predicted_output_tokens_per_s"] = of.plan.tokens / parts.seconds();
  } else {
    json["ttft_s"] = row.ttft_s;
    json["predicted_ttft_s"] = parts.seconds();
  }
  return json;
}

std::string Cell(const ErrorSummary& errors) {
  if (errors.rows == 0) return "-";
  return fmt::format("{:.1f} / {:.1f} / {:.1f}", 100 * errors.mean, 100 * errors.median,
                     100 * errors.p90);
}

Table ErrorTable(const std::string& first) {
  return Table({{first},
                {"rows", Align::kRight},
                {"TPOT error %, mean / median / p90", Align::kRight},
                {"saturated tokens/s", Align::kRight},
                {"static batch", Align::kRight}});
}

void AddErrors(const std::string& name, const std::vector<Scored>& rows, Table& table) {
  table.AddRow({name, fmt::format("{}", rows.size()), Cell(ErrorsOf(rows, ServingKind::kServed)),
                Cell(ErrorsOf(rows, ServingKind::kSaturated)),
                Cell(ErrorsOf(rows, ServingKind::kStaticBatch))});
}

void AddSummary(const std::string& name, const std::vector<Scored>& rows, Table& table) {
  const auto of_kind = [&rows](bool experts) {
    std::vector<Scored> some;
    for (const Scored& each : rows) {
      if (each.of->row.model.moe.used() == experts) some.push_back(each);
    }
    return some;
  };
  AddErrors(name, rows, table);
  AddErrors(name + ", dense", of_kind(false), table);
  AddErrors(name + ", experts", of_kind(true), table);
}

template <typename T>
nlohmann::json NumbersJson(const std::vector<ServingNumber<T>>& numbers, const T& of) {
  nlohmann::json json = nlohmann::json::object();
  for (const ServingNumber<T>& each : numbers) {
    if (each.spread == 0) continue;
    json[each.key] = {{"value", (of.*each.member).value}, {"prior", each.prior}};
  }
  return json;
}

nlohmann::json ToJson(const ServingNumbers& numbers) {
  nlohmann::json gpus = nlohmann::json::object();
  for (const ServingGpu& each : numbers.gpus) {
    gpus[each.generation] = NumbersJson(ServingGpuNumbers(), each);
  }
  nlohmann::json engines = nlohmann::json::object();
  for (const ServingEngine& each : numbers.engines) {
    engines[each.name] = NumbersJson(ServingEngineNumbers(), each);
  }
  return {{"gpus", std::move(gpus)}, {"engines", std::move(engines)}};
}

}  // namespace

nlohmann::json ServingValidationJson(const ServingCases& taken, const ServingNumbers& numbers) {
  const std::vector<Scored> scored = Score(taken, numbers);
  const Decisions decisions = DecisionsOf(taken, numbers);
  nlohmann::json summary = ErrorsJson(scored);
  summary["taken"] = taken.cases.size();
  summary["skipped"] = taken.skipped.size();
  summary["fit"] = decisions.fit;
  summary["waited_for_room"] = decisions.waited;
  summary["waited_for_room_predicted"] = decisions.both;
  summary["waited_for_room_false_alarms"] = decisions.false_alarms;
  for (const Grouping& grouping : Groupings()) {
    nlohmann::json groups = nlohmann::json::object();
    for (const auto& [name, rows] : By(scored, grouping.name)) groups[name] = ErrorsJson(rows);
    summary[std::string("by_") + grouping.key] = std::move(groups);
  }
  nlohmann::json rows = nlohmann::json::array();
  for (const ServingCase& each : taken.cases) rows.push_back(RowJson(each, numbers));
  nlohmann::json skipped = nlohmann::json::array();
  for (const auto& [id, reason] : taken.skipped) {
    skipped.push_back({{"id", id}, {"reason", reason}});
  }
  return {{"summary", std::move(summary)},
          {"rows", std::move(rows)},
          {"skipped_rows", std::move(skipped)}};
}

std::string ServingValidationText(const ServingCases& taken, const ServingNumbers& numbers,
                                  bool bold) {
  const std::vector<Scored> scored = Score(taken, numbers);
  std::string text;
  for (const Grouping& grouping : Groupings()) {
    Table table = ErrorTable(grouping.key);
    for (const auto& [name, rows] : By(scored, grouping.name)) AddErrors(name, rows, table);
    text += table.ToText(bold) + "\n";
  }
  Table all = ErrorTable("rows");
  AddSummary("all", scored, all);
  const Decisions decisions = DecisionsOf(taken, numbers);
  text +=
      all.ToText(bold) +
      fmt::format(
          "\nfits: {} of {} rows, all of which ran; waits for room in the cache: {} of {} rows "
          "that did, {} that did not\n",
          decisions.fit, decisions.rows, decisions.both, decisions.waited, decisions.false_alarms);
  return text + SkippedRowsText(taken.skipped, bold);
}

ServingFitReport ReportServingFit(const ServingCases& taken, bool bold) {
  std::vector<ServingCase> cases;
  for (const ServingCase& each : taken.cases) {
    if (each.plan.fits) cases.push_back(each);
  }
  if (cases.empty()) throw InputError("--fit: no row in the file can be predicted");
  ServingFitReport report;
  Table table = ErrorTable("constants fitted to");
  std::vector<Scored> scored;
  for (const LeftOut by : {LeftOut::kGroup, LeftOut::kModel, LeftOut::kGpu, LeftOut::kEngine}) {
    const ServingFit fit = FitServingHeldOut(cases, by);
    if (scored.empty()) {
      for (const ServingCase& each : cases) scored.push_back({&each, ErrorOf(each, fit.numbers)});
      AddSummary("all rows", scored, table);
      report.json = {{"fitted", ErrorsJson(scored)}, {"numbers", ToJson(fit.numbers)}};
    }
    for (size_t i = 0; i < cases.size(); ++i) scored[i].error = fit.held_out_errors[i];
    AddSummary(fmt::format("other {}s", Name(by)), scored, table);
    report.json[fmt::format("held_out_by_{}", Name(by))] = ErrorsJson(scored);
  }
  report.text = table.ToText(bold) + SkippedRowsText(taken.skipped, bold);
  return report;
}

}  // namespace trimtab
