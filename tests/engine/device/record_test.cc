#include "engine/device/record.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

namespace trimtab {
namespace {

// Names are keys of hardware profiles: each kind needs one, and no two the same.
template <typename Kind>
void ExpectDistinctNames(int count) {
  std::set<std::string_view> names;
  for (int i = 0; i < count; ++i) {
    const std::string_view name = Name(static_cast<Kind>(i));
    EXPECT_FALSE(name.empty()) << i;
    EXPECT_TRUE(names.insert(name).second) << name << " twice";
  }
}

TEST(RecordTest, EveryKindHasItsOwnName) {
  ExpectDistinctNames<OpKind>(kOpKindCount);
  ExpectDistinctNames<CollectiveKind>(kCollectiveKindCount);
  ExpectDistinctNames<GroupKind>(kGroupKindCount);
  EXPECT_EQ(Name(OpKind::kAdamW), "adamw");
  EXPECT_EQ(Name(OpKind::kCrossEntropyGrad), "cross_entropy_grad");
  EXPECT_EQ(Name(CollectiveKind::kReduceScatter), "reduce_scatter");
  EXPECT_EQ(Name(GroupKind::kTensor), "tp");
}

}  // namespace
}  // namespace trimtab
