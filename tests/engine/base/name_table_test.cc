#include "engine/base/name_table.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

enum class Fruit { kApple, kPear };
constexpr std::array<Named<Fruit>, 2> kNames = {{{Fruit::kPear, "pear"}, {Fruit::kApple, "apple"}}};

TEST(NameTable, NamesComeBack) {
  for (const Fruit fruit : {Fruit::kApple, Fruit::kPear}) {
    EXPECT_EQ(FindNamed(kNames, NameIn(kNames, fruit)), fruit);
  }
  EXPECT_EQ(NameIn(kNames, Fruit::kApple), "apple");
  EXPECT_EQ(FindNamed(kNames, "plum"), std::nullopt);
  EXPECT_EQ(FindNamed(kNames, ""), std::nullopt);
  EXPECT_EQ(NamesIn(kNames), (std::vector<std::string>{"pear", "apple"}));
}

}  // namespace
}  // namespace trimtab
