#include "engine/infer/scheduler/block_pool.h"

#include "engine/base/error.h"
#include "engine/base/mix.h"

namespace trimtab {

size_t BlockPool::KeyHash::operator()(const Key& key) const {
  auto hash = static_cast<uint64_t>(key.first);
  for (const int32_t token : key.second) hash = MixBits(hash + static_cast<uint32_t>(token));
  return hash;
}

BlockPool::BlockPool(int64_t blocks) : blocks_(static_cast<size_t>(blocks)) {
  for (int32_t block = 0; block < blocks; ++block) {
    blocks_[static_cast<size_t>(block)].idle = idle_.insert(idle_.end(), block);
  }
}

void BlockPool::Take(int32_t block) {
  Block& taken = blocks_[static_cast<size_t>(block)];
  if (taken.owners++ > 0) return;
  idle_.erase(taken.idle);
  ++used_;
}

std::optional<int32_t> BlockPool::Allocate() {
  if (idle_.empty()) return std::nullopt;
  const int32_t block = idle_.front();
  Take(block);
  Block& taken = blocks_[static_cast<size_t>(block)];
  if (taken.key != nullptr) registered_.erase(registered_.find(*taken.key));
  taken.key = nullptr;
  taken.chain = 0;
  return block;
}

void BlockPool::Release(int32_t block) {
  Block& released = blocks_[static_cast<size_t>(block)];
  TRIMTAB_ASSERT(released.owners > 0, "block {} is given back, but nobody has it", block);
  if (--released.owners > 0) return;
  --used_;
  // What holds nothing of use is used first.
  const auto place = released.key != nullptr ? idle_.end() : idle_.begin();
  released.idle = idle_.insert(place, block);
}

std::optional<BlockPool::Found> BlockPool::Find(ChainId before, std::vector<int32_t> tokens) const {
  ++lookups_;
  const auto found = registered_.find({before, std::move(tokens)});
  if (found == registered_.end()) return std::nullopt;
  return Found{found->second.block, found->second.chain};
}

BlockPool::ChainId BlockPool::Register(int32_t block, ChainId before, std::vector<int32_t> tokens) {
  const auto [place, is_new] = registered_.try_emplace({before, std::move(tokens)});
  if (!is_new) return place->second.chain;
  Block& owner = blocks_[static_cast<size_t>(block)];
  TRIMTAB_ASSERT(owner.key == nullptr && owner.owners > 0, "block {} is registered twice", block);
  owner.key = &place->first;
  owner.chain = ++last_chain_;
  place->second = {block, owner.chain};
  return place->second.chain;
}

}  // namespace trimtab
