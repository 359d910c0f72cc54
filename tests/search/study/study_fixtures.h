// What tests of studies put into them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "search/study/study.h"

namespace trimtab {

/// Three of the tiny problem, the last of which does not fit.
std::vector<CandidateRecord> SomeCandidates();

/// What a worker does when its visit of `run` is done.
void AppendDone(const Study& study, const Attempt& attempt, const RunConfig& run);

/// What `body` throws says; "no error" where it throws nothing.
template <typename ErrorType>
std::string ErrorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace trimtab
