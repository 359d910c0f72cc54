// One layer on the ranks of a layout, put together again: to be compared with what one dense
// computation in double precision makes of the same numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/model/model_config.h"
#include "engine/layers/layer_context.h"
#include "engine/parameters/parameter.h"

namespace trimtab {

inline constexpr int64_t kLayerTokens = 32;  // two sequences of 16

/// Part of a matrix that a tensor-parallel rank has: rows of the residual stream, which are all of
/// them without sequence parallelism; or its columns of all rows.
enum class Held { kRows, kColumns };

/// The input [N, in] and output [N, out] of a layer.
struct LayerShape {
  int64_t in = 0;
  int64_t out = 0;
  Held input = Held::kRows;
  Held output = Held::kRows;
};

/// Forward and backward pass of a layer: y and dx from this rank's parts of x and dy.
using LayerPass =
    std::function<std::pair<Tensor, Tensor>(const LayerContext& context, Tensor x, Tensor dy)>;
/// Declares the layer and returns its passes.
using DeclareLayer = std::function<LayerPass(ParameterStore& store, const LayerContext& context)>;

/// Whole tensors, row by row.
struct WholeLayer {
  std::vector<double> x, dy;  // what went in
  std::vector<double> y, dx;  // what came out
  std::map<std::string, std::vector<double>> weights;
  std::map<std::string, std::vector<double>> gradients;
};

/// Runs the layer in a layout such as "tp=2,sp=1,precision=fp8". Inputs and weights do not depend
/// on it, but for their type.
WholeLayer RunLayer(const ModelConfig& model, const std::string& layout, const LayerShape& shape,
                    const DeclareLayer& declare);

/// Every combination of tp, sp, chunks and precision that is legal.
std::vector<std::string> LayerLayouts();
/// Returns a name for GoogleTest.
std::string LayoutTestName(const std::string& layout);

/// Returns the norm of the difference over that of `expected`.
double RelativeError(const std::vector<double>& actual, const std::vector<double>& expected);
/// Upper bounds of RelativeError by the layout's precision; the defaults are those of one GEMM.
struct LayerTolerances {
  double fp32 = 1e-6;
  double bf16 = 0.01;
  double fp8 = 0.08;

  /// Returns the bound of the layout.
  double Of(const std::string& layout) const;
};
/// Compares `layer` with a dense result `y`, and its gradients with those of `alone`, which ran on
/// one rank in fp32.
void ExpectSameLayer(const WholeLayer& layer, const std::vector<double>& y, const WholeLayer& alone,
                     double tolerance);

/// a [n, k] times b^T, b [m, k]: [n, m].
std::vector<double> TimesTransposed(const std::vector<double>& a, const std::vector<double>& b,
                                    int64_t k);
/// a^T times b: [n, m] from a [k, n] and b [k, m].
std::vector<double> TransposedTimes(const std::vector<double>& a, const std::vector<double>& b,
                                    int64_t k);
std::vector<double> Transposed(const std::vector<double>& matrix, int64_t columns);

}  // namespace trimtab
