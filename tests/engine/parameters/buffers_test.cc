#include "engine/parameters/buffers.h"
#include "engine/base/error.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/base/error.h"

namespace trimtab {
namespace {

std::vector<float> HostCopy(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  CopyToHost(tensor, values);
  return values;
}

TEST(Buffers, StatisticsStandTogetherAndStatesApart) {
  const auto device = MakeCpuDevice(1);
  BufferStore store;
  Buffer& load = store.Declare("load", BufferKind::kStatistic, 3);
  Buffer& bias = store.Declare("bias", BufferKind::kState, 2);
  Buffer& losses = store.Declare("losses", BufferKind::kStatistic, 2);
  store.Allocate(*device);
  EXPECT_EQ(HostCopy(bias.values), (std::vector<float>{0, 0}));
  CopyFromHost(bias.values, std::vector<float>{7, 8});
  CopyFromHost(load.values, std::vector<float>{1, 2, 3});
  Tensor second = losses.Part(1, 1);
  CopyFromHost(second, std::vector<float>{4});
  EXPECT_EQ(HostCopy(store.statistics()), (std::vector<float>{1, 2, 3, 0, 4}));
  EXPECT_EQ(store.all().size(), 3u);
  EXPECT_EQ(store.all()[1]->name, "bias");
  EXPECT_EQ(device->memory().current_total(), 4 * (5 + 2));
}

TEST(Buffers, StatesAreLoadedByName) {
  const auto device = MakeCpuDevice(1);
  BufferStore store;
  Buffer& bias = store.Declare("bias", BufferKind::kState, 2);
  store.Declare("load", BufferKind::kStatistic, 1);
  store.Allocate(*device);
  LoadBuffers(store, {{"bias", {5, 6}}, {"another", {1}}}, "x");
  EXPECT_EQ(HostCopy(bias.values), (std::vector<float>{5, 6}));
  for (const std::vector<float>& values : {std::vector<float>{}, {1}, {1, 2, 3}}) {
    EXPECT_THROW(LoadBuffers(store, {{"bias", values}}, "x"), InputError);
  }
  EXPECT_THROW(LoadBuffers(store, {}, "x"), InputError);
}

TEST(Buffers, TakeNoMemoryWhereThereAreNone) {
  const auto device = MakeCpuDevice(1);
  BufferStore store;
  store.Allocate(*device);
  EXPECT_FALSE(store.statistics().defined());
  EXPECT_EQ(device->memory().current_total(), 0);
}

}  // namespace
}  // namespace trimtab
