#include "engine/data/dataset/open_token_source.h"

#include <algorithm>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/checkpoint/xxh64.h"
#include "engine/data/dataset/dataset.h"

namespace trimtab {
namespace {

constexpr int64_t kBlocks = 64;
constexpr int64_t kBlockBytes = 4096;

/// Bytes at even distances from the beginning of a file to its end; all of a small one.
std::vector<std::byte> SpreadBlocks(const File& file) {
  const int64_t size = file.size();
  if (size <= kBlocks * kBlockBytes) {
    std::vector<std::byte> all(static_cast<size_t>(size));
    file.ReadAt(0, all);
    return all;
  }
  std::vector<std::byte> blocks(static_cast<size_t>(kBlocks * kBlockBytes));
  const int64_t last = size - kBlockBytes;
  for (int64_t i = 0; i < kBlocks; ++i) {
    // Divided first: a dataset may be so large that the product would overflow.
    const int64_t offset = last / (kBlocks - 1) * i + last % (kBlocks - 1) * i / (kBlocks - 1);
    file.ReadAt(offset, std::span(blocks).subspan(static_cast<size_t>(i * kBlockBytes),
                                                  static_cast<size_t>(kBlockBytes)));
  }
  return blocks;
}

}  // namespace

std::unique_ptr<TokenSource> OpenTokenSource(const RunConfig& run) {
  if (run.data.empty()) {
    return MakeSyntheticSource(run.model.vocab_size, run.seed, run.packing.lengths);
  }
  std::unique_ptr<TokenSource> source = OpenDataset(run.data, run.sequence_length, run.seed);
  if (source->vocab_size() > run.model.vocab_size) {
    throw InputError(fmt::format("{}: a vocabulary of {}; expected at most the model's {}",
                                 run.data, source->vocab_size(), run.model.vocab_size));
  }
  return source;
}

std::string IdentityOfTokens(const RunConfig& run) {
  if (run.data.empty()) return "synthetic tokens";
  const File tokens = File::OpenForReading(run.data + ".bin");
  const MappedFile index(run.data + ".idx");
  std::vector<std::byte> seen = SpreadBlocks(tokens);
  seen.insert(seen.end(), index.bytes().begin(), index.bytes().end());
  return fmt::format("{} bytes, index of {} bytes, xxh64 {}", tokens.size(), index.bytes().size(),
                     Xxh64Hex(seen));
}

}  // namespace trimtab
