#include "engine/families/registry.h"

#include <gtest/gtest.h>

#include <set>

#include "engine/base/error.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

TEST(Families, HaveTypesOfTheirOwnAndWhatGoesWithThem) {
  std::set<std::string> types;
  for (const Family& family : Families()) {
    for (const std::string& type : family.types) {
      EXPECT_TRUE(types.insert(type).second) << type;
      EXPECT_EQ(FindFamily(type), &family);
    }
    const bool has_files = !family.types.empty();
    SCOPED_TRACE(has_files ? family.types.front() : family.presets.front().title);
    EXPECT_EQ(family.read != nullptr, has_files);
    EXPECT_EQ(family.write != nullptr, has_files);
    EXPECT_EQ(family.tensors.rows.empty(), !has_files);
    EXPECT_TRUE(has_files || !family.presets.empty());
  }
}

TEST(Families, AnUnknownTypeIsRefusedWithThoseThatAreKnown) {
  EXPECT_EQ(FindFamily("mamba"), nullptr);
  EXPECT_EQ(
      ErrorText<InputError>([] { RequireFamily("mamba", "c.json"); }),
      "c.json: the tensors of model_type 'mamba' are not known; expected one of " + FamilyTypes());
}

// The names of exported tensors begin with the prefix that files of the body alone leave out.
TEST(Families, PrefixesAreThoseOfTheTokenTable) {
  for (const Family& family : Families()) {
    for (const TensorRows rows : family.tensors.rows) {
      for (const TensorRow& row : rows) {
        if (row.ours != "embedding.word_embeddings") continue;
        EXPECT_TRUE(row.theirs.front().starts_with(family.tensors.prefix)) << row.theirs.front();
      }
    }
  }
}

// In models of any blocks, no two layers of ours are named after one tensor.
TEST(Families, TablesNameEachTensorOnce) {
  for (const Family& family : Families()) {
    if (family.types.empty()) continue;  // has no files
    for (const BlockKind block :
         {BlockKind::kSequential, BlockKind::kParallel, BlockKind::kParallelShared,
          BlockKind::kSandwich, BlockKind::kPostNorm}) {
      SCOPED_TRACE(family.types.front());
      std::set<std::string_view> ours;
      std::set<std::string_view> theirs;
      for (const TensorRows rows : family.tensors.rows) {
        for (const TensorRow& row : rows) {
          EXPECT_FALSE(row.theirs.front().empty()) << row.ours;
          if (row.block.value_or(block) != block || !ours.insert(row.ours).second) continue;
          for (const std::string_view name : row.theirs) {
            EXPECT_TRUE(name.empty() || theirs.insert(name).second) << name;
          }
        }
      }
      EXPECT_GE(ours.size(), 8u);
    }
  }
}

}  // namespace
}  // namespace trimtab
