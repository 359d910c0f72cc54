// Shortlist: the candidates that a search looks at closely, of the many that its space has.
//
// Those stay that may matter: the best by the search's objective, of all and of each class (ranks,
// global batch and numerics, which a report compares and whose predictions are off by errors of
// their own), and plain data parallelism.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "search/walk/layout_list.h"

namespace trimtab {

class Shortlist final : public LayoutList {
 public:
  /// How many stay, of all and of each class.
  static constexpr size_t kOfAll = 200;
  static constexpr size_t kOfClass = 25;

  explicit Shortlist(Objective objective, size_t of_all = kOfAll, size_t of_class = kOfClass)
      : objective_(objective), most_of_class_(of_class), of_all_(of_all) {}

  Objective objective() const override { return objective_; }
  /// All of a class agree in the first rows.
  bool MayTake(const RunConfig& run, size_t bound, double score) const override;
  void Offer(const SpacePlace& place, const RunConfig& run, const Prediction& prediction) override;
  /// A plain one.
  bool Misses(const RunConfig& run) const override;
  std::vector<std::shared_ptr<const Shortlisted>> Take() override;

 private:
  struct Entry {
    SortKey key;
    std::shared_ptr<const Shortlisted> candidate;
    /// By key, and of equal ones by place.
    bool operator<(const Entry& other) const;
  };
  /// The best so many.
  class Best {
   public:
    explicit Best(size_t most) : most_(most) {}
    bool MayTake(double score) const;
    void Add(const Entry& entry);
    const std::vector<Entry>& entries() const { return entries_; }
    size_t most() const { return most_; }

   private:
    size_t most_;
    std::vector<Entry> entries_;  // a heap, the worst at its top
  };
  using Class = std::tuple<int64_t, int64_t, Numerics>;
  static Class ClassOf(const RunConfig& run);

  Objective objective_;
  size_t most_of_class_;
  Best of_all_;
  std::map<Class, Best> of_class_;
  std::vector<std::shared_ptr<const Shortlisted>> plain_;
};

}  // namespace trimtab
