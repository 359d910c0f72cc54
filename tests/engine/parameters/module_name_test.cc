#include "engine/parameters/module_name.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace trimtab {
namespace {

TEST(ModuleNameTest, GrowsFromTheNamesOfModules) {
  const ModuleName layer = "decoder.layers." + ModuleName("12");
  const ModuleName name = layer + ".mlp" + ".linear_fc1.weight";
  EXPECT_EQ(name.view(), "decoder.layers.12.mlp.linear_fc1.weight");
  EXPECT_EQ(name.size(), name.view().size());
  EXPECT_EQ(layer.view(), "decoder.layers.12") << "names made of it leave it alone";
}

TEST(ModuleNameTest, IsAsGoodAsAString) {
  const ModuleName name = "output_layer.weight";
  const std::string text = name;
  EXPECT_EQ(text, "output_layer.weight");
  EXPECT_EQ(name, ModuleName(text));
  EXPECT_FALSE(name == ModuleName("output_layer"));
  EXPECT_EQ(fmt::format("<{}>", name), "<output_layer.weight>");
  std::ostringstream out;
  out << name;
  EXPECT_EQ(out.str(), text);
  EXPECT_EQ(ModuleName().view(), "");
}

TEST(ModuleNameDeathTest, RefusesWhatDoesNotFit) {
  const ModuleName full = std::string(ModuleName::kCapacity, 'x');
  EXPECT_EQ(full.size(), ModuleName::kCapacity);
  EXPECT_DEATH(full + "y", "xy is too long");
}

}  // namespace
}  // namespace trimtab
