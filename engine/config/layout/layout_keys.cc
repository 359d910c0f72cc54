#include "engine/config/layout/layout_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/config/json/strict_json.h"
#include "engine/config/json/text_values.h"
#include "engine/config/model/model_limits.h"

namespace trimtab {
namespace {

constexpr int64_t kMaxOverlapChunks = 64;

enum class Printed { kIfNotDefault, kAlways };

/// A key whose value is an integer.
template <auto kMember, int64_t kMin, int64_t kMax>
constexpr LayoutKey Integer(const char* name, const char* meaning,
                            Printed printed = Printed::kIfNotDefault) {
  return {.name = name,
          .meaning = meaning,
          .always_printed = printed == Printed::kAlways,
          .values = [] { return kMax < 10 ? fmt::format("{}..{}", kMin, kMax) : "N"; },
          .print = [](const ParallelConfig& layout) { return std::to_string(layout.*kMember); },
          .parse =
              [](const std::string& text, const std::string& what, ParallelConfig& layout) {
                int64_t value = 0;
                if (!ParseInteger(text, value) || value < kMin || value > kMax) {
                  throw UsageError(fmt::format("{}: expected an integer from {} to {}, got '{}'",
                                               what, kMin, kMax, text));
                }
                layout.*kMember = value;
              },
          .read = [](StrictObject& object, const char* key,
                     ParallelConfig& layout) { object.Integer(key, layout.*kMember, kMin, kMax); },
          .write = [](const ParallelConfig& layout) -> nlohmann::json { return layout.*kMember; }};
}

/// A key that is on or off: 1 or 0 in text, a boolean in JSON.
template <auto kMember>
constexpr LayoutKey Switch(const char* name, const char* meaning) {
  return {.name = name,
          .meaning = meaning,
          .always_printed = false,
          .values = []() -> std::string { return "0 | 1"; },
          .print = [](const ParallelConfig& layout) -> std::string {
            return layout.*kMember ? "1" : "0";
          },
          .parse =
              [](const std::string& text, const std::string& what, ParallelConfig& layout) {
                if (text != "0" && text != "1") {
                  throw UsageError(fmt::format("{}: expected 0 or 1, got '{}'", what, text));
                }
                layout.*kMember = text == "1";
              },
          .read = [](StrictObject& object, const char* key,
                     ParallelConfig& layout) { object.Boolean(key, layout.*kMember); },
          .write = [](const ParallelConfig& layout) -> nlohmann::json { return layout.*kMember; }};
}

/// Returns a member of a layout, or of its numerics.
template <auto kMember, typename Layout>
constexpr auto& Member(Layout& layout) {
  if constexpr (requires { layout.*kMember; }) {
    return layout.*kMember;
  } else {
    return layout.numerics.*kMember;
  }
}

/// A key whose value is one of `kValues`, written by name.
template <auto kMember, auto... kValues>
struct WordKey {
  static std::array<std::string, sizeof...(kValues)> Names() {
    return {std::string(Name(kValues))...};
  }
  static void Set(const std::string& name, ParallelConfig& layout) {
    ((Name(kValues) == name ? void(Member<kMember>(layout) = kValues) : void()), ...);
  }
  static void Parse(const std::string& text, const std::string& what, ParallelConfig& layout) {
    const auto names = Names();
    if (std::find(names.begin(), names.end(), text) == names.end()) {
      throw UsageError(
          fmt::format("{}: unknown value '{}'{}", what, text, SuggestName(text, names)));
    }
    Set(text, layout);
  }
  static void Read(StrictObject& object, const char* key, ParallelConfig& layout) {
    std::string name(Name(Member<kMember>(layout)));
    object.Choice(key, name, Names());
    Set(name, layout);
  }
};
template <auto kMember, auto... kValues>
constexpr LayoutKey Word(const char* name, const char* meaning) {
  using Key = WordKey<kMember, kValues...>;
  return {
      .name = name,
      .meaning = meaning,
      .always_printed = false,
      .values = [] { return fmt::format("{}", fmt::join(Key::Names(), " | ")); },
      .print =
          [](const ParallelConfig& layout) { return std::string(Name(Member<kMember>(layout))); },
      .parse = Key::Parse,
      .read = Key::Read,
      .write = [](const ParallelConfig& layout) -> nlohmann::json {
        return Name(Member<kMember>(layout));
      }};
}

/// A key whose value has a text form of its own, made by ToString and read by `kParse`.
template <auto kMember, auto kParse>
constexpr LayoutKey Text(const char* name, const char* meaning, std::string (*values)()) {
  return {.name = name,
          .meaning = meaning,
          .always_printed = false,
          .values = values,
          .print = [](const ParallelConfig& layout) { return ToString(layout.*kMember); },
          .parse = [](const std::string& text, const std::string& what,
                      ParallelConfig& layout) { layout.*kMember = kParse(text, what); },
          .read =
              [](StrictObject& object, const char* key, ParallelConfig& layout) {
                std::string text = ToString(layout.*kMember);
                object.Text(key, text);
                try {
                  layout.*kMember = kParse(text, object.Where(key));
                } catch (const UsageError& error) {
                  throw InputError(error.what());  // the same words, but it is a file that is wrong
                }
              },
          .write = [](const ParallelConfig& layout) -> nlohmann::json {
            return ToString(layout.*kMember);
          }};
}

using P = ParallelConfig;

constexpr LayoutKey kKeys[] = {
    Integer<&P::tp, 1, kMaxWorld>("tp", "tensor parallel size", Printed::kAlways),
    Switch<&P::sequence_parallel>("sp",
                                  "sequence parallel: shard tokens outside attention and MLP"),
    Integer<&P::tp_overlap_chunks, 1, kMaxOverlapChunks>(
        "tp_overlap_chunks", "chunks in which tp collectives overlap their products; 1 = none"),
    Integer<&P::cp, 1, kMaxWorld>("cp", "context parallel size"),
    Word<&P::cp_comm_type, CpCommType::kP2p, CpCommType::kAllGather>(
        "cp_comm_type", "keys and values: around a ring, or gathered"),
    Integer<&P::pp, 1, kMaxWorld>("pp", "pipeline parallel size"),
    Integer<&P::vp, 1, kMaxLayers>("vp", "model chunks per pipeline rank"),
    Text<&P::stages, ParseStageLayers>("stages", "layers of each chunk, in the model's order",
                                       []() -> std::string { return "auto | N+N+..."; }),
    Integer<&P::ep, 1, kMaxWorld>("ep", "expert parallel size"),
    Integer<&P::etp, 1, kMaxWorld>("etp", "tensor parallel size of the experts"),
    Word<&P::dispatch, Dispatch::kAllToAll, Dispatch::kAllGather>(
        "dispatch", "tokens: each to its experts' ranks, or all gathered by all of them"),
    Integer<&P::dp, 1, kMaxWorld>("dp", "data parallel size; derived if left out",
                                  Printed::kAlways),
    Integer<&P::zero, 0, 3>("zero", "shard over dp: 1 optimizer, 2 and gradients, 3 and weights"),
    Integer<&P::shard, 0, kMaxWorld>("shard",
                                     "ranks that share one sharded replica; 0 = all of dp"),
    Switch<&P::reshard_after_forward>("reshard_after_forward",
                                      "with zero=3: drop gathered weights between the passes"),
    Switch<&P::overlap_grad_reduce>("overlap_grad_reduce",
                                    "reduce gradients beside the backward pass"),
    Switch<&P::overlap_param_gather>("overlap_param_gather",
                                     "with zero=1, 2: gather updated weights beside the next "
                                     "forward pass"),
    Word<&P::schedule, Schedule::k1F1B, Schedule::kGpipe, Schedule::kInterleaved1F1B,
         Schedule::kZeroBubble>("schedule",
                                "order of micro batches on a pipeline stage; if left out, "
                                "interleaved-1f1b with vp above 1, else 1f1b"),
    Integer<&P::micro_batch, 1, kMaxBatch>("mbs", "sequences per micro batch", Printed::kAlways),
    Text<&P::recompute, ParseStageRecompute>(
        "recompute", "activations recomputed in the backward pass",
        [] { return fmt::format("{}; PLAN: {}", kStageRecomputeForms, kRecomputeForms); }),
    Word<&Numerics::precision, Precision::kFp32, Precision::kTf32, Precision::kBf16,
         Precision::kFp16, Precision::kFp8>("precision", "of weights, activations and products"),
    Word<&Numerics::master, MasterWeights::kFp32, MasterWeights::kRemainder>(
        "master", "master weights beside 16-bit ones"),
    Word<&Numerics::moments, DType::kF32, DType::kBf16, DType::kF16, DType::kI8>(
        "moments", "of the optimizer, stored in"),
    Word<&Numerics::gradients, DType::kF32, DType::kBf16>("grads", "gradients, stored in"),
};

}  // namespace

std::span<const LayoutKey> LayoutKeys() { return kKeys; }

const LayoutKey& LayoutKeyCalled(std::string_view name) {
  const std::span<const LayoutKey> keys = LayoutKeys();
  const auto found = std::ranges::find(keys, name, &LayoutKey::name);
  TRIMTAB_ASSERT(found != keys.end(), "no key of a layout is called {}", name);
  return *found;
}

}  // namespace trimtab
