#include "tests/engine/layers/layer_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <random>
#include <string_view>

#include "engine/checkpoint/slice_runs.h"
#include "engine/layers/fp8_state.h"

namespace trimtab {
namespace {

std::vector<double> Numbers(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<double> numbers(static_cast<size_t>(count));
  for (double& each : numbers) {
    each = static_cast<double>(random() % 2001) / 1000 - 1;
  }
  return numbers;
}

/// Part of a whole matrix that a rank has.
struct Part {
  Part(const LayerContext& context, Held held, int64_t width)
      : whole_columns(width),
        rows(held == Held::kRows ? context.rows() : context.tokens()),
        columns(held == Held::kRows ? width : width / context.tp()),
        first_row(held == Held::kRows ? context.row_begin() : 0),
        first_column(held == Held::kRows ? 0 : context.parallel.tp_rank * columns) {}

  size_t Whole(int64_t i) const {
    return static_cast<size_t>((first_row + i / columns) * whole_columns + first_column +
                               i % columns);
  }

  int64_t whole_columns;
  int64_t rows;
  int64_t columns;
  int64_t first_row;
  int64_t first_column;
};

Tensor Cut(const LayerContext& context, const Part& part, const std::vector<double>& whole) {
  Tensor tensor = context.New({part.rows, part.columns}, MemoryTag::kActivations);
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    values[static_cast<size_t>(i)] = static_cast<float>(whole[part.Whole(i)]);
  }
  CopyFromHost(tensor, values);
  return tensor;
}

std::vector<float> ToHost(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  CopyToHost(tensor, values);
  return values;
}

void Place(const Tensor& tensor, const Part& part, std::vector<double>& whole) {
  ASSERT_EQ(tensor.shape(), (Shape{part.rows, part.columns}));
  const std::vector<float> values = ToHost(tensor);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    whole[part.Whole(i)] = static_cast<double>(values[static_cast<size_t>(i)]);
  }
}

/// Adds what a rank has of a parameter, or puts it in place.
void PlaceParameter(const Parameter& parameter, const Tensor& values, bool adds,
                    std::map<std::string, std::vector<double>>& all) {
  const ParameterSpec& spec = parameter.spec;
  std::vector<double>& whole = all[std::string(spec.name)];
  whole.resize(static_cast<size_t>(spec.partition.full_rows * spec.partition.full_columns));
  const std::vector<float> local = ToHost(values);
  ForEachRun(spec, 0, parameter.numel(), [&](int64_t from, int64_t full, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      double& to = whole[static_cast<size_t>(full + i)];
      to = (adds ? to : 0) + static_cast<double>(local[static_cast<size_t>(from + i)]);
    }
  });
}

}  // namespace

WholeLayer RunLayer(const ModelConfig& model, const std::string& layout, const LayerShape& shape,
                    const DeclareLayer& declare) {
  WholeLayer whole;
  whole.x = Numbers(kLayerTokens * shape.in, 1);
  whole.dy = Numbers(kLayerTokens * shape.out, 2);
  whole.y.resize(whole.dy.size());
  whole.dx.resize(whole.x.size());
  std::mutex mutex;
  RunInprocRanks(ParseLayout(layout, 0), [&](ParallelContext& parallel) {
    const std::unique_ptr<Device> device = MakeCpuDevice(1);
    const TrainingTypes types = TypesOf(parallel.layout.numerics);
    Fp8State fp8({.scaling = "current"});
    const LayerContext context = {.device = *device,
                                  .parallel = parallel,
                                  .model = model,
                                  .micro_batch = 2,
                                  .sequence = kLayerTokens / 2,
                                  .types = types,
                                  .fp8 = types.fp8 ? &fp8 : nullptr};
    ParameterStore store;
    const LayerPass pass = declare(store, context);
    store.Allocate(*device, types.weights, DType::kF32);
    store.Initialize(/*seed=*/3);
    if (types.fp8) {
      fp8.Allocate(*device);
      fp8.QuantizeWeights(parallel);
    }
    const Part input(context, shape.input, shape.in);
    const Part output(context, shape.output, shape.out);
    const auto [y, dx] =
        pass(context, Cut(context, input, whole.x), Cut(context, output, whole.dy));
    const std::scoped_lock lock(mutex);
    Place(y, output, whole.y);
    Place(dx, input, whole.dx);
    for (const Parameter* parameter : store.parameters()) {
      PlaceParameter(*parameter, parameter->weight, /*adds=*/false, whole.weights);
      // Each rank makes the gradient of a replicated parameter from its own rows. Data-parallel
      // ranks have the same rows here.
      const bool adds = !parameter->spec.tensor_parallel && context.sequence_parallel();
      if (adds && parallel.dp_rank > 0) continue;
      PlaceParameter(*parameter, parameter->gradient, adds, whole.gradients);
    }
  });
  return whole;
}

std::vector<std::string> LayerLayouts() {
  std::vector<std::string> layouts;
  for (const char* precision : {"fp32", "bf16", "fp8"}) {
    for (const char* ranks :
         {"tp=1", "tp=2", "tp=4", "tp=2,sp=1", "tp=4,sp=1", "tp=2,tp_overlap_chunks=2",
          "tp=2,sp=1,tp_overlap_chunks=2", "tp=4,sp=1,tp_overlap_chunks=4"}) {
      // Rules refuse chunks in fp8.
      const bool chunks = std::string_view(ranks).find("chunks") != std::string_view::npos;
      if (chunks && std::string_view(precision) == "fp8") continue;
      layouts.push_back(std::string(ranks) + ",precision=" + precision);
    }
  }
  return layouts;
}

std::string LayoutTestName(const std::string& layout) {
  std::string name = layout;
  std::ranges::replace_if(
      name, [](char c) { return c == '=' || c == ','; }, '_');
  return name;
}

double RelativeError(const std::vector<double>& actual, const std::vector<double>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  EXPECT_GT(size, 0);
  return std::sqrt(difference / size);
}

double LayerTolerances::Of(const std::string& layout) const {
  if (layout.ends_with("fp32")) return fp32;
  return layout.ends_with("bf16") ? bf16 : fp8;
}

void ExpectSameLayer(const WholeLayer& layer, const std::vector<double>& y, const WholeLayer& alone,
                     double tolerance) {
  EXPECT_LT(RelativeError(layer.y, y), tolerance);
  EXPECT_LT(RelativeError(layer.dx, alone.dx), tolerance);
  for (const auto& [name, gradient] : alone.gradients) {
    EXPECT_LT(RelativeError(layer.gradients.at(name), gradient), tolerance) << name;
  }
}

std::vector<double> TimesTransposed(const std::vector<double>& a, const std::vector<double>& b,
                                    int64_t k) {
  const auto inner = static_cast<size_t>(k);
  const size_t n = a.size() / inner;
  const size_t m = b.size() / inner;
  std::vector<double> product(n * m);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < m; ++j) {
      for (size_t l = 0; l < inner; ++l) product[i * m + j] += a[i * inner + l] * b[j * inner + l];
    }
  }
  return product;
}

std::vector<double> Transposed(const std::vector<double>& matrix, int64_t columns) {
  const auto width = static_cast<size_t>(columns);
  const size_t rows = matrix.size() / width;
  std::vector<double> transposed(matrix.size());
  for (size_t i = 0; i < matrix.size(); ++i) transposed[i % width * rows + i / width] = matrix[i];
  return transposed;
}

std::vector<double> TransposedTimes(const std::vector<double>& a, const std::vector<double>& b,
                                    int64_t k) {
  const int64_t n = std::ssize(a) / k;
  const int64_t m = std::ssize(b) / k;
  return TimesTransposed(Transposed(a, n), Transposed(b, m), k);
}

}  // namespace trimtab
