#include "engine/ops/activation/gate_rows.h"

#include <cmath>

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

using GateRowsTest = OpTest;

TEST_P(GateRowsTest, MatchesItsFormulaAndDerivative) {
  for (const int64_t rows : {1, 3, 65}) {
    // The last two are whole packs: a part of what a warp reads at once, and more than that.
    for (const int64_t columns : {1, 17, 130, 64, 1032}) {
      const auto gate = RandomValues(rows, 1, 4.0f);
      const auto x = Values(rows * columns, 2);
      const auto dy = Values(rows * columns, 3);
      std::vector<double> y;
      std::vector<double> dx;
      std::vector<double> dgate;
      for (int64_t row = 0; row < rows; ++row) {
        const auto sigmoid = [](double g) { return 1.0 / (1.0 + std::exp(-g)); };
        const double g = gate[static_cast<size_t>(row)];
        double dot = 0;
        for (int64_t i = row * columns; i < (row + 1) * columns; ++i) {
          const auto at = static_cast<size_t>(i);
          y.push_back(sigmoid(g) * static_cast<double>(x[at]));
          dx.push_back(sigmoid(g) * static_cast<double>(dy[at]));
          dot += static_cast<double>(x[at]) * static_cast<double>(dy[at]);
        }
        dgate.push_back(dot * NumericGradient({g}, [&](auto v) { return sigmoid(v[0]); })[0]);
      }
      const Shape matrix = {rows, columns};
      const Tensor gate_device = Input({rows, 1}, gate, DType::kF32);
      const Tensor x_device = Input(matrix, x);
      Tensor y_device = Output(matrix);
      GateRows(gate_device, x_device, y_device);
      ExpectClose(Read(y_device), y, tolerance().elementwise, "y");
      Tensor dx_device = Output(matrix);
      Tensor dgate_device = Output({rows, 1}, DType::kF32);
      GateRowsBackward(gate_device, x_device, Input(matrix, dy), dx_device, dgate_device);
      ExpectClose(Read(dx_device), dx, tolerance().elementwise, "dx");
      ExpectClose(Read(dgate_device), dgate, tolerance(DType::kF32).chained, "dgate");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, GateRowsTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
