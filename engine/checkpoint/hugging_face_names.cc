#include "engine/checkpoint/hugging_face_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "engine/base/error.h"
#include "engine/checkpoint/slice_runs.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

/// What the numbers in `name` are that the '*' of `pattern` stand for; nothing if it does not fit.
std::optional<std::vector<std::string>> Match(std::string_view pattern, std::string_view name) {
  std::vector<std::string> numbers;
  size_t at = 0;
  for (const char letter : pattern) {
    if (letter == '*') {
      const size_t begin = at;
      while (at < name.size() && std::isdigit(static_cast<unsigned char>(name[at])) != 0) ++at;
      if (at == begin) return std::nullopt;
      numbers.emplace_back(name.substr(begin, at - begin));
    } else if (at < name.size() && name[at] == letter) {
      ++at;
    } else {
      return std::nullopt;
    }
  }
  if (at != name.size()) return std::nullopt;
  return numbers;
}

/// The pattern with its '*' replaced by `numbers`.
std::string Fill(std::string_view pattern, const std::vector<std::string>& numbers) {
  std::string filled;
  size_t next = 0;
  for (const char letter : pattern) {
    if (letter == '*') {
      filled += numbers.at(next++);
    } else {
      filled += letter;
    }
  }
  return filled;
}

/// The row of a layer of ours; nullptr when there is none.
const TensorRow* FindRow(TensorRows rows, const ModelConfig& model, std::string_view layer) {
  for (const TensorRow& row : rows) {
    if (row.block.value_or(model.block) == model.block && Match(row.ours, layer)) return &row;
  }
  return nullptr;
}
const TensorRow* FindRow(const Family& family, const ModelConfig& model, std::string_view layer) {
  for (const TensorRows rows : family.tensors.rows) {
    if (const TensorRow* row = FindRow(rows, model, layer)) return row;
  }
  return nullptr;
}

/// The layers of theirs that make one of ours, whose numbers are `numbers`.
std::vector<std::string> LayersOf(const TensorRow& row, const ModelConfig& model,
                                  std::vector<std::string> numbers) {
  std::vector<std::string> layers;
  const auto add = [&] {
    for (const std::string_view theirs : row.theirs) {
      if (!theirs.empty()) layers.push_back(Fill(theirs, numbers));
    }
  };
  if (row.form != TensorForm::kExperts) {
    add();
    return layers;
  }
  numbers.emplace_back();
  for (int64_t expert = 0; expert < model.moe.num_experts; ++expert) {
    numbers.back() = std::to_string(expert);
    add();
  }
  return layers;
}

/// Makes the source of one parameter.
class SourceMaker {
 public:
  SourceMaker(const ModelConfig& model, const ParameterSpec& parameter,
              std::vector<std::string> names)
      : model_(model),
        names_(std::move(names)),
        rows_(parameter.partition.full_rows),
        columns_(parameter.partition.full_columns),
        is_matrix_(parameter.is_matrix) {}

  HuggingFaceSource Make(TensorForm form) {
    switch (form) {
      case TensorForm::kSame:
        AddTensor(names_.front(), rows_);
        AddRows(rows_, 0);
        break;
      case TensorForm::kTransposed:
        Transposed();
        break;
      case TensorForm::kStacked:
        Stacked(names_.size() == 3 ? HeadBlocks() : EqualBlocks());
        break;
      case TensorForm::kExperts:
        Stacked(EqualBlocks());
        break;
      case TensorForm::kHeadGroups:
        HeadGroups();
        break;
      case TensorForm::kStackedExperts:
        StackedExperts();
        break;
      case TensorForm::kTransposedRowsExperts:
        source_.tensors.push_back({names_.front(), {experts() * columns_, rows_ / experts()}});
        TransposedExperts(1);
        break;
      case TensorForm::kTransposedExperts:
        AddExpertsTensor();
        TransposedExperts(1);
        break;
      case TensorForm::kInterleavedExperts:
        AddExpertsTensor();
        TransposedExperts(2);
        break;
      case TensorForm::kWholeExperts:
        source_.tensors.push_back({names_.front(), {experts(), rows_ / experts(), columns_}});
        AddRows(rows_, 0);
        break;
    }
    TRIMTAB_ASSERT(next_ == rows_, "{}: {} rows of {}", names_.front(), next_, rows_);
    return std::move(source_);
  }

 private:
  void AddTensor(const std::string& name, int64_t rows) {
    source_.tensors.push_back({name, {rows}});
    if (is_matrix_) source_.tensors.back().shape.push_back(columns_);
  }

  /// The next rows of ours, from row `first` of the last tensor on.
  void AddRows(int64_t rows, int64_t first) {
    source_.pieces.push_back({.begin = next_,
                              .rows = rows,
                              .tensor = source_.tensors.size() - 1,
                              .first = first * columns_,
                              .row_stride = columns_});
    next_ += rows;
  }

  void Transposed() {
    if (!is_matrix_) {
      AddTensor(names_.front(), rows_);
      return AddRows(rows_, 0);
    }
    source_.tensors.push_back({names_.front(), {columns_, rows_}});
    source_.pieces.push_back({.rows = rows_, .column_stride = rows_});
    next_ = rows_;
  }

  /// Rows of queries, keys and values.
  std::vector<int64_t> HeadBlocks() const {
    const int64_t queries = model_.num_heads * model_.head_size();
    const int64_t keys = model_.num_kv_heads * model_.head_size();
    return {queries, keys, keys};
  }
  std::vector<int64_t> EqualBlocks() const {
    return std::vector<int64_t>(names_.size(), rows_ / static_cast<int64_t>(names_.size()));
  }
  void Stacked(const std::vector<int64_t>& blocks) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      AddTensor(names_[i], blocks[i]);
      AddRows(blocks[i], 0);
    }
  }

  void HeadGroups() {
    AddTensor(names_.front(), rows_);
    const int64_t head = model_.head_size();
    const int64_t queries = model_.num_heads / model_.num_kv_heads;  // of a group
    const int64_t group = (queries + 2) * head;
    for (int64_t g = 0; g < model_.num_kv_heads; ++g) AddRows(queries * head, g * group);
    for (int64_t g = 0; g < model_.num_kv_heads; ++g) AddRows(head, g * group + queries * head);
    for (int64_t g = 0; g < model_.num_kv_heads; ++g) {
      AddRows(head, g * group + (queries + 1) * head);
    }
  }

  int64_t experts() const { return model_.moe.num_experts; }

  void StackedExperts() {
    const auto parts = static_cast<int64_t>(names_.size());
    const int64_t rows = rows_ / experts() / parts;  // of a part of one expert
    for (const std::string& name : names_) AddTensor(name, rows * experts());
    for (int64_t expert = 0; expert < experts(); ++expert) {
      for (size_t part = 0; part < names_.size(); ++part) {
        source_.pieces.push_back({.begin = next_,
                                  .rows = rows,
                                  .tensor = part,
                                  .first = expert * rows * columns_,
                                  .row_stride = columns_});
        next_ += rows;
      }
    }
  }

  /// [E, in, out], or of a vector [E, out].
  void AddExpertsTensor() {
    source_.tensors.push_back({names_.front(), {experts()}});
    if (is_matrix_) source_.tensors.back().shape.push_back(columns_);
    source_.tensors.back().shape.push_back(rows_ / experts());
  }
  /// The rows of an expert are columns of theirs: those of `parts` parts in turn.
  void TransposedExperts(int64_t parts) {
    const int64_t out = rows_ / experts();
    for (int64_t expert = 0; expert < experts(); ++expert) {
      for (int64_t part = 0; part < parts; ++part) {
        source_.pieces.push_back({.begin = next_,
                                  .rows = out / parts,
                                  .first = expert * columns_ * out + part,
                                  .row_stride = parts,
                                  .column_stride = is_matrix_ ? out : 1});
        next_ += out / parts;
      }
    }
  }

  const ModelConfig& model_;
  std::vector<std::string> names_;
  int64_t rows_;
  int64_t columns_;
  bool is_matrix_;
  HuggingFaceSource source_;
  int64_t next_ = 0;  // row of ours
};

/// Where `rows` say that the parameter is, under its full name or that of its layer; nothing if
/// they do not say it.
std::optional<HuggingFaceSource> SourceIn(TensorRows rows, const ModelConfig& model,
                                          const ParameterSpec& parameter) {
  const std::string name = parameter.name;
  if (const TensorRow* row = FindRow(rows, model, name)) {
    return SourceMaker(model, parameter, LayersOf(*row, model, *Match(row->ours, name)))
        .Make(row->form);
  }
  const size_t dot = name.rfind('.');
  const std::string layer = name.substr(0, dot);
  const TensorRow* row = FindRow(rows, model, layer);
  if (row == nullptr) return std::nullopt;
  std::vector<std::string> names = LayersOf(*row, model, *Match(row->ours, layer));
  for (std::string& each : names) each += name.substr(dot);
  return SourceMaker(model, parameter, std::move(names)).Make(row->form);
}

/// Their name of the weight of a layer of ours that stands alone; empty if there is none.
std::string WeightName(const Family& family, const ModelConfig& model, std::string_view layer) {
  const TensorRow* row = FindRow(family, model, layer);
  return row == nullptr ? "" : std::string(row->theirs.front()) + ".weight";
}

}  // namespace

HuggingFaceSource SourceOf(const Family& family, const ModelConfig& model,
                           const ParameterSpec& parameter) {
  for (const TensorRows rows : family.tensors.rows) {
    if (auto source = SourceIn(rows, model, parameter)) return std::move(*source);
  }
  throw InputError(fmt::format("model '{}': a model of type {} has no parameter '{}'", model.name,
                               family.types.front(), parameter.name));
}

std::optional<HuggingFaceSource> FusedSourceOf(const Family& family, const ModelConfig& model,
                                               const ParameterSpec& parameter) {
  return SourceIn(family.tensors.fused, model, parameter);
}

ParameterSpec SpecOf(const Buffer& buffer) {
  return {.name = buffer.name,
          .rows = buffer.numel,
          .is_matrix = false,
          .tensor_parallel = false,
          .partition = WholePartition(buffer.numel, 1)};
}

std::string ShortName(const Family& family, const std::string& name) {
  return name.starts_with(family.tensors.prefix) ? name.substr(family.tensors.prefix.size()) : name;
}

bool IsPassedOver(const Family& family, const ModelConfig& model, const std::string& name) {
  const auto is = [&](std::string_view pattern) {
    return Match(pattern, name).has_value() ||
           Match(ShortName(family, std::string(pattern)), name).has_value();
  };
  if (std::any_of(family.tensors.buffers.begin(), family.tensors.buffers.end(), is)) return true;
  for (int64_t i = model.num_layers; i < model.num_layers + model.mtp_modules; ++i) {
    if (name.starts_with(fmt::format("{}layers.{}.", family.tensors.prefix, i))) return true;
  }
  return model.tied_embeddings && name == OutputName(family, model);
}

std::string TokenTableName(const Family& family, const ModelConfig& model) {
  return WeightName(family, model, "embedding.word_embeddings");
}

std::string OutputName(const Family& family, const ModelConfig& model) {
  return WeightName(family, model, "output_layer");
}

}  // namespace trimtab
