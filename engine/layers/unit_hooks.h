// UnitHooks: told which unit of parameters the model is about to use, and when it is done with it.
#pragma once

#include <cstddef>
#include <optional>

namespace trimtab {

/// Does nothing: the parameters of a rank on its own are always there. Units are numbered as in
/// ParameterStore. `next` is the unit whose weights are used after this one, if that is known.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;

  /// The weights are about to be read.
  virtual void BeginForward(size_t /*unit*/, std::optional<size_t> /*next*/) {}
  /// They will not be read before the backward pass. Not told of a unit whose backward pass follows
  /// at once.
  virtual void EndForward(size_t /*unit*/) {}
  /// The weights are about to be read, and gradients to be written: for every micro batch once.
  virtual void BeginBackward(size_t /*unit*/, std::optional<size_t> /*next*/) {}
  /// The gradients of the unit's own parameters are final for this micro batch.
  virtual void EndBackward(size_t /*unit*/) {}
};

}  // namespace trimtab
