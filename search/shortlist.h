// Shortlist: the candidates that a search looks at closely, of the many that its space has.
//
// Every legal candidate that fits is offered with its closed form; those stay that may matter: the
// best by each objective, the best of each class (ranks and numerics, which a report compares and
// whose predictions are off by errors of their own), and plain data parallelism.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "search/strategy.h"

namespace trimtab {

/// One that stays.
struct Shortlisted {
  int64_t number = 0;  // in the order in which candidates were offered
  RunConfig run;
  Prediction prediction;
};

class Shortlist {
 public:
  /// How many stay by each objective, of all and of each class.
  static constexpr size_t kOfAll = 500;
  static constexpr size_t kOfClass = 25;

  void Offer(const RunConfig& run, const Prediction& prediction);
  int64_t offered() const { return offered_; }
  /// What stays, in the order in which it was offered. Empties the list.
  std::vector<std::shared_ptr<const Shortlisted>> Take();

 private:
  struct Place {
    SortKey key;
    std::shared_ptr<const Shortlisted> candidate;
    /// By key, and of equal ones by the order in which they were offered.
    bool operator<(const Place& other) const;
  };
  /// The best so many.
  class Best {
   public:
    explicit Best(size_t most) : most_(most) {}
    bool Takes(const SortKey& key) const;
    void Add(Place place);
    const std::vector<Place>& places() const { return places_; }

   private:
    size_t most_;
    std::vector<Place> places_;  // a heap, the worst at its top
  };
  using ByObjective = std::array<Best, kObjectives.size()>;
  using Class = std::tuple<int64_t, Precision, MasterWeights, DType, DType>;

  static ByObjective MakeBest(size_t most);

  int64_t offered_ = 0;
  ByObjective of_all_ = MakeBest(kOfAll);
  std::map<Class, ByObjective> of_class_;
  std::vector<std::shared_ptr<const Shortlisted>> plain_;
};

}  // namespace trimtab
