#include <unistd.h>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/model_config.h"
#include "tools/command.h"
#include "tools/table.h"

namespace trimtab {
namespace {

std::string InShort(int64_t parameters) {
  return ShortCount(static_cast<double>(parameters), /*digits=*/3);
}

/// What families are called, by what the names of their presets begin with.
struct Family {
  std::string_view prefix;
  std::string_view title;
};
constexpr Family kFamilies[] = {
    {"gpt2", "GPT-2"},
    {"gpt3", "GPT-3"},
    {"mt-nlg", "MT-NLG"},
    {"opt", "OPT"},
    {"bloom", "BLOOM"},
    {"mpt", "MPT"},
    {"gpt-j", "GPT-J"},
    {"gpt-neox", "GPT-NeoX"},
    {"pythia", "Pythia"},
    {"falcon", "Falcon"},
    {"minitron", "Nemotron"},
    {"nemotron", "Nemotron"},
    {"llama", "Llama"},
    {"tinyllama", "Llama"},
    {"mistral", "Mistral"},
    {"qwen2.5", "Qwen2.5"},
    {"qwen3", "Qwen3"},
    {"qwen1.5-moe", "Qwen2-MoE"},
    {"qwen2-57b", "Qwen2-MoE"},
    {"gemma2", "Gemma 2"},
    {"glm", "GLM"},
    {"mixtral", "Mixtral"},
    {"deepseek", "DeepSeek"},
    {"gpt-oss", "GPT-OSS"},
    {"dbrx", "DBRX"},
    {"grok", "Grok"},
};

std::string FamilyOf(const std::string& preset) {
  for (const Family& family : kFamilies) {
    if (preset.starts_with(family.prefix)) return std::string(family.title);
  }
  TRIMTAB_ASSERT(false, "the family of preset '{}' has no name", preset);
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

  /// A row for each run of presets of one family.
  static void PrintMarkdown() {
    std::string text = "| family | presets (parameters) |\n| --- | --- |\n";
    std::string row_of;
    for (const std::string& name : ModelPresetNames()) {
      const ModelConfig model = LoadModelConfig(name);
      const std::string family = FamilyOf(name);
      if (family != row_of) text += fmt::format("{}| {} | ", row_of.empty() ? "" : " |\n", family);
      text += fmt::format("{}`{}` ({})", family == row_of ? ", " : "", name,
                          InShort(model.parameter_count()));
      row_of = family;
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
