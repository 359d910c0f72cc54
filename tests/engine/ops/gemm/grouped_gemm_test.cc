#include "engine/ops/gemm/grouped_gemm.h"

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

class GroupedGemmTest : public OpTest {
 protected:
  struct Sizes {
    std::vector<int64_t> rows;
    int64_t n;
    int64_t k;

    int64_t groups() const { return static_cast<int64_t>(rows.size()); }
    int64_t all() const {
      int64_t sum = 0;
      for (const int64_t each : rows) sum += each;
      return sum;
    }
    /// The group of each row.
    std::vector<int64_t> group_of() const {
      std::vector<int64_t> groups;
      for (size_t g = 0; g < rows.size(); ++g) {
        groups.insert(groups.end(), static_cast<size_t>(rows[g]), static_cast<int64_t>(g));
      }
      return groups;
    }
  };
  /// The last one's rows lie 2 KiB apart, which the cpu multiplies from copies.
  static std::vector<Sizes> AllSizes() {
    return {{{1}, 1, 1},
            {{3, 0, 5}, 7, 9},
            {{0, 0}, 4, 3},
            {{17, 1, 0, 30}, 33, 20},
            {{3, 0, 5}, 512, 9}};
  }
};

double At(const std::vector<float>& values, int64_t row, int64_t columns, int64_t column) {
  return values[static_cast<size_t>(row * columns + column)];
}

TEST_P(GroupedGemmTest, MultipliesTheRowsOfEachGroupByItsMatrix) {
  for (const Sizes& s : AllSizes()) {
    const auto a = Values(s.all() * s.k, 1);
    const auto b = Values(s.groups() * s.k * s.n, 2);
    for (const Transpose transpose : {Transpose::kNo, Transpose::kYes}) {
      const bool transposed = transpose == Transpose::kYes;
      std::vector<double> expected;
      const std::vector<int64_t> group_of = s.group_of();
      for (int64_t row = 0; row < s.all(); ++row) {
        const int64_t first = group_of[static_cast<size_t>(row)] * s.k * s.n;
        for (int64_t column = 0; column < s.n; ++column) {
          double sum = 0;
          for (int64_t i = 0; i < s.k; ++i) {
            const int64_t at = first + (transposed ? column * s.k + i : i * s.n + column);
            sum += At(a, row, s.k, i) * static_cast<double>(b[static_cast<size_t>(at)]);
          }
          expected.push_back(sum);
        }
      }
      Tensor c = Output({s.all(), s.n});
      GroupedGemm(Input({s.all(), s.k}, a),
                  Input(transposed ? Shape{s.groups(), s.n, s.k} : Shape{s.groups(), s.k, s.n}, b),
                  transpose, s.rows, c);
      ExpectClose(Read(c), expected, tolerance().product, "c");
    }
  }
}

TEST_P(GroupedGemmTest, GradientsOfTheMatricesAreThoseOfTheirRows) {
  for (const Sizes& s : AllSizes()) {
    const auto dy = Values(s.all() * s.n, 3);
    const auto x = Values(s.all() * s.k, 4);
    const auto before = GradientValues(s.groups() * s.n * s.k, 5);
    for (const bool accumulate : {false, true}) {
      std::vector<double> expected(before.size());
      if (accumulate) expected = ToDouble(before);
      const std::vector<int64_t> group_of = s.group_of();
      for (int64_t row = 0; row < s.all(); ++row) {
        for (int64_t i = 0; i < s.n * s.k; ++i) {
          expected[static_cast<size_t>(group_of[static_cast<size_t>(row)] * s.n * s.k + i)] +=
              At(dy, row, s.n, i / s.k) * At(x, row, s.k, i % s.k);
        }
      }
      Tensor dw = Input({s.groups(), s.n, s.k}, before, gradient_dtype());
      GroupedGemmWeights(Input({s.all(), s.n}, dy), Input({s.all(), s.k}, x), s.rows, dw,
                         {.accumulate = accumulate});
      ExpectClose(Read(dw), expected, tolerance(gradient_dtype()).product, "dw");
    }
  }
}

TEST_P(GroupedGemmTest, BiasesOfGroupsAndTheirGradients) {
  for (const Sizes& s : AllSizes()) {
    const auto bias = Values(s.groups() * s.n, 6);
    const auto x = Values(s.all() * s.n, 7);
    const auto before = GradientValues(s.groups() * s.n, 8);
    const std::vector<int64_t> group_of = s.group_of();
    std::vector<double> expected;
    std::vector<double> sums(before.size());
    for (int64_t row = 0; row < s.all(); ++row) {
      for (int64_t i = 0; i < s.n; ++i) {
        const int64_t g = group_of[static_cast<size_t>(row)];
        expected.push_back(At(x, row, s.n, i) + At(bias, g, s.n, i));
        sums[static_cast<size_t>(g * s.n + i)] += At(x, row, s.n, i);
      }
    }
    Tensor y = Input({s.all(), s.n}, x);
    GroupedAddBias(Input({s.groups(), s.n}, bias), s.rows, y);
    ExpectClose(Read(y), expected, tolerance().elementwise, "y");
    for (const bool accumulate : {false, true}) {
      std::vector<double> gradient = sums;
      for (size_t i = 0; accumulate && i < gradient.size(); ++i) {
        gradient[i] += static_cast<double>(before[i]);
      }
      Tensor dbias = Input({s.groups(), s.n}, before, gradient_dtype());
      GroupedBiasBackward(Input({s.all(), s.n}, x), s.rows, dbias, accumulate);
      ExpectClose(Read(dbias), gradient, tolerance(gradient_dtype()).reduction, "dbias");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, GroupedGemmTest, testing::ValuesIn(AllTargets()), TargetName);

TEST(GroupedGemmDeathTest, RowsThatDoNotAddUpStopTheProgram) {
  const auto device = MakeCpuDevice(1);
  const auto empty = [&device](const Shape& shape) {
    return Tensor::Empty(*device, shape, DType::kF32, MemoryTag::kActivations);
  };
  Tensor c = empty({4, 2});
  const std::vector<int64_t> rows = {1, 2};
  EXPECT_DEATH(GroupedGemm(empty({4, 3}), empty({2, 3, 2}), Transpose::kNo, rows, c),
               "grouped_gemm: 2 groups with 3 rows in all, expected 2 with 4");
}

}  // namespace
}  // namespace trimtab
