#include "cost_model/validation/fitted_files.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cost_model/hardware/builtin_profiles.h"
#include "engine/base/error.h"

namespace trimtab {
namespace {

using Json = nlohmann::ordered_json;  // a file keeps its order

/// To four digits: more would be noise.
double Rounded(double value) { return std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr); }

void ScalePoints(Json& curve, double factor) {
  for (Json& point : curve.at("points")) point[1] = Rounded(point[1].get<double>() * factor);
}

/// Runs say something about a constant when they narrow what was expected of it.
constexpr double kInformed = 0.9;

void Scale(const FitConstant& constant, double factor, double sd, Json& file) {
  const std::string& name = constant.kind->name;
  if (!constant.kind->of_stack && name.starts_with("gemm_efficiency")) {
    Json& curve = file.at("gemm_efficiency");
    const bool fp8 = name.ends_with("fp8");
    if (!fp8) ScalePoints(curve, factor);
    if (fp8 && curve.contains("by_precision") && curve.at("by_precision").contains("fp8")) {
      ScalePoints(curve.at("by_precision").at("fp8"), factor);
    }
  } else if (!constant.kind->of_stack && name == "attention") {
    ScalePoints(file.at("attention_forward_efficiency"), factor);
    ScalePoints(file.at("attention_backward_efficiency"), factor);
  } else {
    Json& number = file.at(name);
    double value = number.at("value").get<double>() * factor;
    if (constant.kind->of_stack) {
      value = std::clamp(value, constant.kind->least, constant.kind->most);
    }
    number["value"] = Rounded(value);
    if (!constant.kind->of_stack || constant.shared) return;
    const bool fitted = sd < kInformed * constant.spread;
    number["origin"] = fitted ? "fitted" : "modelled";
    number["source"] = fitted ? "fitted to published training runs of this stack (README.md)"
                              : "what is usual; published runs hardly say";
  }
}

bool IsOf(const FitConstant& constant, const Json& file, bool stack) {
  if (constant.kind->of_stack != stack) return false;
  if (!stack && constant.owner == kNetworks) return file.contains(constant.kind->name);
  if (!stack) return file.value("generation", "") == constant.owner;
  if (!constant.shared) return file.at("name") == constant.owner;
  const auto number = file.find(constant.kind->name);
  return number != file.end() && number->value("prior", 0.0) == constant.shipped;
}

}  // namespace

std::vector<FittedFile> FittedFiles(std::span<const FitResult> fits) {
  std::vector<FittedFile> files;
  const auto add = [&](const char* folder, std::span<const EmbeddedJson> texts, bool stack) {
    for (const EmbeddedJson& each : texts) {
      Json file = Json::parse(each.json);
      bool fitted = false;
      for (const FitResult& fit : fits) {
        for (size_t i = 0; i < fit.constants.size(); ++i) {
          if (!IsOf(fit.constants[i], file, stack)) continue;
          Scale(fit.constants[i], std::exp(fit.logs[i]), fit.sds[i], file);
          fitted = true;
        }
      }
      if (!fitted) continue;
      files.push_back({fmt::format("{}/{}.json", folder, each.name), file.dump(1) + "\n"});
    }
  };
  add("profiles", ProfileFiles(), false);
  add("stacks", StackFiles(), true);
  return files;
}

}  // namespace trimtab
