// The tokens that a measured run trains on.
#pragma once

#include <memory>

#include "engine/config/run_config.h"
#include "engine/data/token_source.h"

namespace trimtab {

/// The run's dataset, or synthetic tokens when it names none. Throws InputError: no such data, or
/// of another vocabulary.
std::unique_ptr<TokenSource> OpenTokenSource(const RunConfig& run);

}  // namespace trimtab
