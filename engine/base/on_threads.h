// Work that several threads share out among themselves.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace trimtab {

/// Calls work(0) to work(count - 1) on so many threads, each of which takes the next one that
/// nobody has. Throws what the first of them threw, when all have ended.
template <typename Work>
void OnThreads(int threads, size_t count, const Work& work) {
  std::atomic<size_t> next = 0;
  std::vector<std::exception_ptr> errors(count);
  const auto take = [&] {
    for (size_t i; (i = next++) < count;) {
      try {
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> workers;
  for (size_t i = 1; i < std::min(count, static_cast<size_t>(threads)); ++i) {
    workers.emplace_back(take);
  }
  take();
  for (std::thread& each : workers) each.join();
  for (const std::exception_ptr& each : errors) {
    if (each) std::rethrow_exception(each);
  }
}

}  // namespace trimtab
