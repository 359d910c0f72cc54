// OpenTokenSource: the tokens that a run trains on.
#pragma once

#include <memory>
#include <string>

#include "engine/config/run/run_config.h"
#include "engine/data/dataset/token_source.h"

namespace trimtab {

/// Opens the tokens of `run`: its dataset, or synthetic ones when run.data is empty.
/// Throws InputError when the data is damaged, too short, or has ids the model does not know.
std::unique_ptr<TokenSource> OpenTokenSource(const RunConfig& run);

/// Names the content of the run's tokens, wherever the files are: "synthetic tokens", or the sizes
/// and a checksum of the dataset's index and of blocks spread over its tokens. Throws InputError.
std::string IdentityOfTokens(const RunConfig& run);

}  // namespace trimtab
