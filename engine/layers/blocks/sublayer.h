// The contracts of what a layer is made of: a mixer, which lets tokens see each other, and a
// feed-forward part, which takes each token alone.
//
// A sublayer is made from its specification (engine/config/model/layer_spec.h), which it copies.
// Forward fills a struct of its own, Saved, with what Backward needs. What that may do without:
//
//   DropInput  releases the input in whatever form it is kept; Recompute is then given the input
//              again (recompute module layernorm)
//   Saved{}    a feed-forward part keeps nothing at all; Recompute then makes all of it from the
//              input (recompute module mlp)
//
// An fp8 run may have the op before a sublayer write its input, or its dy, as the fp8 copies that
// its first, or last, product multiplies: InputTarget and GradientTarget return where, or nothing
// where the plain matrix is needed.
#pragma once

#include <concepts>
#include <optional>
#include <utility>
#include <variant>

#include "engine/layers/linear/linear_gemms.h"

namespace trimtab {

template <typename S>
concept SublayerSaved = std::default_initializable<S> && std::movable<S> &&
    requires(S& saved, const S& kept) {
  { kept.has_input() } -> std::same_as<bool>;
  saved.DropInput();
};

template <typename L>
concept Sublayer = SublayerSaved<typename L::Saved> &&
    std::constructible_from<L, ParameterStore&, const LayerContext&, const ModuleName&,
                            const typename L::Spec&> &&
    requires(const L& layer, const LayerContext& context, LinearOperand x, typename L::Saved& saved,
             const Tensor& residual) {
  // y [rows, C], an activation, from x [rows, C]; plus `residual` [rows, C], where that is defined.
  { layer.Forward(context, std::move(x), saved, residual) } -> std::same_as<Tensor>;
  { layer.InputTarget(context) } -> std::same_as<std::optional<Fp8Target>>;
  // Makes again, from x, what `saved` lacks because it was dropped.
  { layer.Recompute(context, std::move(x), saved) } -> std::same_as<void>;
};

template <typename L>
concept Mixer = Sublayer<L> &&
    requires(const L& layer, const LayerContext& context, LinearOperand dy,
             typename L::Saved& saved, const typename L::Saved& kept, bool accumulate) {
  // False until Forward has run.
  { kept.defined() } -> std::same_as<bool>;
  { layer.GradientTarget(context) } -> std::same_as<std::optional<Fp8Target>>;
  // dx [rows, C] from dy [rows, C]. Adds to the gradients of the weights, or overwrites them when
  // not `accumulate`.
  { layer.Backward(context, saved, std::move(dy), accumulate) } -> std::same_as<Tensor>;
};

template <typename L>
concept FeedForward = Sublayer<L> &&
    requires(const L& layer, const LayerContext& context, const Tensor& dy,
             typename L::Saved& saved, bool accumulate) {
  // See Mixer.
  { layer.Backward(context, saved, dy, accumulate) } -> std::same_as<Tensor>;
};

/// A sublayer of one of several kinds: that whose specification it is made from.
template <Sublayer... Kinds>
class OneOf {
 public:
  using Spec = std::variant<typename Kinds::Spec...>;

  /// What the kind keeps; of the first kind until something is kept.
  class Saved {
   public:
    bool has_input() const {
      return std::visit([](const auto& saved) { return saved.has_input(); }, kept_);
    }
    void DropInput() {
      std::visit([](auto& saved) { saved.DropInput(); }, kept_);
    }
    bool defined() const {
      return std::visit([](const auto& saved) { return saved.defined(); }, kept_);
    }

   private:
    friend OneOf;
    template <typename Kind>
    typename Kind::Saved& Of(const Kind& /*kind*/) {
      using Kept = typename Kind::Saved;
      return std::holds_alternative<Kept>(kept_) ? std::get<Kept>(kept_)
                                                 : kept_.template emplace<Kept>();
    }

    std::variant<typename Kinds::Saved...> kept_;
  };

  OneOf(ParameterStore& store, const LayerContext& context, const ModuleName& name,
        const Spec& spec)
      : kind_(Make(store, context, name, spec)) {}

  // See Sublayer, Mixer and FeedForward.

  Tensor Forward(const LayerContext& context, LinearOperand&& x, Saved& saved,
                 const Tensor& residual) const {
    return std::visit(
        [&](const auto& kind) {
          return kind.Forward(context, std::move(x), saved.Of(kind), residual);
        },
        kind_);
  }
  std::optional<Fp8Target> InputTarget(const LayerContext& context) const {
    return std::visit([&](const auto& kind) { return kind.InputTarget(context); }, kind_);
  }
  std::optional<Fp8Target> GradientTarget(const LayerContext& context) const {
    return std::visit([&](const auto& kind) { return kind.GradientTarget(context); }, kind_);
  }
  void Recompute(const LayerContext& context, LinearOperand&& x, Saved& saved) const {
    std::visit([&](const auto& kind) { kind.Recompute(context, std::move(x), saved.Of(kind)); },
               kind_);
  }
  template <typename Gradient>
  Tensor Backward(const LayerContext& context, Saved& saved, Gradient&& dy, bool accumulate) const {
    return std::visit(
        [&](const auto& kind) {
          return kind.Backward(context, saved.Of(kind), std::forward<Gradient>(dy), accumulate);
        },
        kind_);
  }

  /// nullptr if it is of another kind.
  template <typename Kind>
  const Kind* If() const {
    return std::get_if<Kind>(&kind_);
  }

 private:
  using Alternatives = std::variant<Kinds...>;

  static Alternatives Make(ParameterStore& store, const LayerContext& context,
                           const ModuleName& name, const Spec& spec) {
    std::optional<Alternatives> made;
    const auto try_kind = [&]<typename Kind>(std::in_place_type_t<Kind> type) {
      const auto* its = std::get_if<typename Kind::Spec>(&spec);
      if (its != nullptr) made.emplace(type, store, context, name, *its);
    };
    (try_kind(std::in_place_type<Kinds>), ...);
    return std::move(*made);
  }

  Alternatives kind_;
};

}  // namespace trimtab
