// UnitHooks: told which unit of parameters the model is about to use, and when it is done with it.
#pragma once

#include <cstddef>
#include <optional>

namespace trimtab {

/// Gradients of a unit: of all its parameters, or, where a backward pass is made in two parts, of
/// the vectors (biases, norms) in the first and of the matrices in the second.
enum class GradientPart { kAll, kVectors, kMatrices };

/// Does nothing: the parameters of a rank on its own are always there. Units are numbered as in
/// ParameterStore; a unit stands for those that it also uses. `next` is the unit whose weights are
/// read after this one's, if that is known.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;

  // The weights are read from Begin to End.

  virtual void BeginForward(size_t /*unit*/, std::optional<size_t> /*next*/) {}
  /// Not told of where the backward pass follows at once.
  virtual void EndForward(size_t /*unit*/) {}
  virtual void BeginBackward(size_t /*unit*/, std::optional<size_t> /*next*/) {}
  virtual void EndBackward(size_t /*unit*/) {}

  /// Gradients are about to be written.
  virtual void BeginGradients(size_t /*unit*/, GradientPart /*part*/) {}
  /// They are final for this micro batch.
  virtual void EndGradients(size_t /*unit*/, GradientPart /*part*/) {}
};

}  // namespace trimtab
