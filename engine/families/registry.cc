#include "engine/families/registry.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {

std::span<const Family> Families() {
#define TRIMTAB_MAKE_FAMILY(name, place) name(),
  static const std::vector<Family> families = {TRIMTAB_FAMILIES(TRIMTAB_MAKE_FAMILY)};
#undef TRIMTAB_MAKE_FAMILY
  return families;
}

const Family* FindFamily(const std::string& type) {
  for (const Family& family : Families()) {
    if (std::ranges::find(family.types, type) != family.types.end()) return &family;
  }
  return nullptr;
}

const Family& RequireFamily(const std::string& type, const std::string& where) {
  if (const Family* family = FindFamily(type)) return *family;
  throw InputError(
      fmt::format("{}: the tensors of model_type '{}' are not known; expected one of {}", where,
                  type, FamilyTypes()));
}

std::string FamilyTypes() {
  std::string types;
  for (const Family& family : Families()) {
    for (const std::string& type : family.types) types += (types.empty() ? "" : ", ") + type;
  }
  return types;
}

std::span<const PresetGroup> PresetGroups() {
#define TRIMTAB_PLACE_FAMILY(name, place) place,
  static constexpr int kPlaces[] = {TRIMTAB_FAMILIES(TRIMTAB_PLACE_FAMILY)};
#undef TRIMTAB_PLACE_FAMILY
  static const std::vector<PresetGroup> groups = [] {
    std::vector<std::pair<int, const Family*>> placed;
    for (const Family& family : Families()) placed.push_back({kPlaces[placed.size()], &family});
    std::ranges::stable_sort(placed, {}, &std::pair<int, const Family*>::first);
    std::vector<PresetGroup> all;
    for (const auto& [place, family] : placed) {
      all.insert(all.end(), family->presets.begin(), family->presets.end());
    }
    return all;
  }();
  return groups;
}

}  // namespace trimtab
