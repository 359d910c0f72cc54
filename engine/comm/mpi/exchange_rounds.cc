#include "engine/comm/mpi/exchange_rounds.h"

#include <algorithm>
#include <bit>

namespace trimtab {

std::vector<DisseminationRound> DisseminationRounds(int rank, int size) {
  std::vector<DisseminationRound> rounds;
  for (int distance = 1; distance < size; distance *= 2) {
    rounds.push_back({.to = (rank + distance) % size,
                      .from = (rank + size - distance) % size,
                      .distance = distance,
                      .blocks = std::min(distance, size - distance)});
  }
  return rounds;
}

TreePlace PlaceInTree(int rank, int size, int root) {
  const auto place = static_cast<unsigned>((rank + size - root) % size);
  const auto rank_at = [&](unsigned other) { return (static_cast<int>(other) + root) % size; };
  TreePlace tree;
  // In round k the first 2^k places have the data, and each sends it 2^k places further.
  const unsigned first = place == 0 ? 1 : 2 * std::bit_floor(place);
  if (place > 0) tree.parent = rank_at(place - std::bit_floor(place));
  for (unsigned distance = first; place + distance < static_cast<unsigned>(size); distance *= 2) {
    tree.children.push_back(rank_at(place + distance));
  }
  return tree;
}

}  // namespace trimtab
