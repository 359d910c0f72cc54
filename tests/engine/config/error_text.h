// The message of an exception that is expected.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace trimtab {

/// The message of the `ErrorType` that `body` throws; fails the test if it throws none.
template <typename ErrorType, typename Body>
std::string ErrorText(const Body& body) {
  try {
    body();
  } catch (const ErrorType& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace trimtab
