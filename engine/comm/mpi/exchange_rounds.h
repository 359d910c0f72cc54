// Peers of a rank in collectives that take about log2(size) rounds.
#pragma once

#include <vector>

namespace trimtab {

/// One round of a dissemination: `distance` further on is the rank that is sent to, `distance` back
/// the one that is received from. When every rank passes on its own block and the blocks it has
/// received, this round carries `blocks` of them.
struct DisseminationRound {
  int to = 0;
  int from = 0;
  int distance = 0;
  int blocks = 0;
};

/// Returns the ceil(log2(size)) rounds after which every rank has heard of every other: directly,
/// or from ranks that had heard of it in earlier rounds.
std::vector<DisseminationRound> DisseminationRounds(int rank, int size);

/// Place of a rank in a tree over which rank `root` reaches all others, a binomial one.
struct TreePlace {
  int parent = -1;            // -1: the root
  std::vector<int> children;  // the one with the largest subtree first
};

TreePlace PlaceInTree(int rank, int size, int root);

}  // namespace trimtab
