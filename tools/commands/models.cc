#include <unistd.h>
#include <nlohmann/json.hpp>

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/families/load_config.h"
#include "engine/families/registry.h"
#include "tools/cli/command.h"
#include "tools/cli/table.h"

namespace trimtab {
namespace {

std::string InShort(int64_t parameters) {
  return ShortCount(static_cast<double>(parameters), /*digits=*/3);
}

class ModelsCommand : public Command {
 public:
  std::string name() const override { return "models"; }
  std::string summary() const override { return "list the built-in models, or show one in full"; }

  void Declare(FlagSet& flags) override {
    flags.Positional("MODEL", model_, "show this preset or file as model JSON");
    flags.Switch("--markdown", markdown_, "list names and sizes as a table in Markdown");
  }

  int Run(const OutputOptions& output) override {
    if (markdown_ && output.json) throw UsageError("--markdown contradicts --json");
    if (!model_.empty()) {
      PrintJson(ToJson(LoadModelConfig(model_)));
    } else if (markdown_) {
      PrintMarkdown();
    } else if (output.json) {
      PrintList();
    } else {
      PrintTable(UseColor(output, STDOUT_FILENO));
    }
    return 0;
  }

 private:
  static void PrintList() {
    nlohmann::json models = nlohmann::json::array();
    for (const std::string& name : ModelPresetNames()) {
      nlohmann::json model = ToJson(LoadModelConfig(name));
      const ModelConfig config = LoadModelConfig(name);
      model["parameters"] = config.parameter_count();
      model["active_parameters"] = config.active_parameter_count();
      if (config.mtp_modules > 0) {
        model["mtp_parameters"] = config.mtp_modules * config.mtp_parameter_count();
      }
      models.push_back(std::move(model));
    }
    PrintJson({{"schema_version", 1}, {"models", std::move(models)}});
  }

  /// Prints a row for each run of groups with one title.
  static void PrintMarkdown() {
    std::string text = "| family | presets (parameters) |\n| --- | --- |\n";
    std::string row_of;
    for (const PresetGroup& group : PresetGroups()) {
      for (const ModelConfig& model : group.models) {
        if (group.title != row_of) {
          text += fmt::format("{}| {} | ", row_of.empty() ? "" : " |\n", group.title);
        }
        text += fmt::format("{}`{}` ({})", group.title == row_of ? ", " : "", model.name,
                            InShort(model.parameter_count()));
        row_of = group.title;
      }
    }
    Print(text + " |\n");
  }

  static void PrintTable(bool bold) {
    Table table({{"model"},
                 {"parameters", Align::kRight},
                 {"active", Align::kRight},
                 {"layers", Align::kRight},
                 {"hidden", Align::kRight},
                 {"heads", Align::kRight},
                 {"kv heads", Align::kRight},
                 {"ffn", Align::kRight},
                 {"vocab", Align::kRight},
                 {"positions", Align::kRight}});
    for (const std::string& name : ModelPresetNames()) {
      const ModelConfig model = LoadModelConfig(name);
      table.AddRow({name, InShort(model.parameter_count()), InShort(model.active_parameter_count()),
                    fmt::format("{}", model.num_layers), fmt::format("{}", model.hidden_size),
                    fmt::format("{}", model.num_heads), fmt::format("{}", model.num_kv_heads),
                    fmt::format("{}", model.ffn_hidden_size), fmt::format("{}", model.vocab_size),
                    fmt::format("{}", model.max_sequence_length)});
    }
    PrintText(table.ToText(bold));
  }

  std::string model_;
  bool markdown_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeModelsCommand() { return std::make_unique<ModelsCommand>(); }

}  // namespace trimtab
