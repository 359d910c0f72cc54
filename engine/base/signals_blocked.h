// SignalsBlocked: threads that signals leave alone.
//
// Kernels that are compiled while a program runs keep values below their stack's end, further than
// the ABI's red zone: oneDNN's products for AVX-512 do. A signal's handler would write over them,
// and whatever the thread computes next would be wrong. So threads that compute get no signals, and
// where the main thread computes itself, handlers have a stack of their own (tools/cli/signals.cc).
#pragma once

#include <csignal>

namespace trimtab {

/// As long as it lives, the calling thread blocks all signals but those of its own faults, and the
/// threads that it starts do for good.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t others;
    ::sigfillset(&others);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) {
      ::sigdelset(&others, fault);
    }
    ::pthread_sigmask(SIG_BLOCK, &others, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace trimtab
