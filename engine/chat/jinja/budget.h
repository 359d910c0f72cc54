// What a template may use: other people write templates, and a loop in one must end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace trimtab::jinja {

/// A fault found while a template runs; the interpreter adds the line.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The work and memory of one rendering. Operations reach it through SpendStep and SpendBytes
/// without being passed it: each thread has at most one.
class Budget {
 public:
  Budget();
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

 private:
  friend void Spend(uint64_t cost);
  friend class DepthGuard;

  uint64_t left_;
  int depth_ = 0;
  Budget* outer_;
};

/// One step of evaluation, or `count` of them. Throws Failure when the budget is used up.
void SpendStep(uint64_t count = 1);
/// Bytes that are made. Throws Failure when the budget is used up.
void SpendBytes(size_t bytes);

/// Expressions and statements nested deeper than this are refused.
inline constexpr int kMaxDepth = 400;
/// See kMaxDepth; while a template runs, where macros call themselves.
inline constexpr int kMaxRunDepth = 1000;

/// One level of calls within calls. Throws Failure when there are too many.
class DepthGuard {
 public:
  DepthGuard();
  ~DepthGuard();
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
};

}  // namespace trimtab::jinja
