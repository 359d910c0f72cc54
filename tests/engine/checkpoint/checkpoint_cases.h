// Checkpoints of a small model, written and read as the ranks of a layout do.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/slice_runs.h"
#include "engine/families/load_config.h"

namespace trimtab {

/// Slots of every parameter, the weight first.
inline constexpr std::array<const char*, 3> kSlots = {kWeightSlot, "m", "v"};

/// The parameters of a small model as rank `tp_rank` of `tp` holds them: every kind of split.
inline std::vector<ParameterSpec> Specs(int64_t tp, int64_t tp_rank) {
  const auto spec = [](const char* name, int64_t rows, int64_t columns, bool matrix,
                       Partition partition) {
    ParameterSpec made;
    made.name = name;
    made.rows = rows;
    made.columns = columns;
    made.is_matrix = matrix;
    made.partition = std::move(partition);
    return made;
  };
  // A vocabulary of 19 padded to 24: the last ranks hold rows that do not exist.
  const int64_t vocab_rows = 24 / tp;
  Partition vocab;
  vocab.full_rows = 19;
  vocab.full_columns = 5;
  const int64_t first = tp_rank * vocab_rows;
  const int64_t valid = std::clamp<int64_t>(19 - first, 0, vocab_rows);
  if (valid > 0) vocab.segments = {{0, first, valid}};
  return {spec("embedding", vocab_rows, 5, true, vocab),
          spec("qkv.weight", 40 / tp, 5, true, RowBlocksPartition({24, 8, 8}, 5, tp, tp_rank)),
          spec("qkv.bias", 40 / tp, 1, false, RowBlocksPartition({24, 8, 8}, 1, tp, tp_rank)),
          spec("proj.weight", 7, 16 / tp, true, ColumnPartition(7, 16, tp, tp_rank)),
          spec("norm.weight", 7, 1, false, WholePartition(7, 1))};
}

/// The value of an element of the full tensor: tells where it belongs.
inline float Expected(std::string_view slot, const ParameterSpec& spec, int64_t full) {
  const auto kind = std::find(kSlots.begin(), kSlots.end(), slot) - kSlots.begin();
  return static_cast<float>(static_cast<size_t>(kind) * 100000 + spec.name.size() * 1000 +
                            static_cast<size_t>(full));
}

/// The local shard of a spec; padding holds -1.
inline std::vector<float> Local(std::string_view slot, const ParameterSpec& spec) {
  std::vector<float> values(static_cast<size_t>(spec.rows * spec.columns), -1.0f);
  ForEachRun(spec, 0, spec.rows * spec.columns, [&](int64_t local, int64_t full, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      values[static_cast<size_t>(local + i)] = Expected(slot, spec, full + i);
    }
  });
  return values;
}

inline CheckpointHeader Header(int64_t step) {
  CheckpointHeader header;
  header.run.model = LoadModelConfig("gpt2-tiny");
  header.run.global_batch = 4;
  header.run.sequence_length = 32;
  header.step = step;
  header.samples = step * 4;
  header.tokens = "synthetic tokens";
  return header;
}

/// The parameters with the slots of AdamW.
inline std::vector<StoredParameter> Stored(std::span<const ParameterSpec> specs) {
  std::vector<StoredParameter> stored;
  for (const ParameterSpec& spec : specs) stored.push_back({&spec, {"m", "v"}});
  return stored;
}

/// Writes as `tp` ranks would, each shard cut into pieces at random places (as zero 1 cuts it).
inline void WriteAs(const std::string& directory, int64_t tp, uint32_t seed, int64_t step = 7) {
  std::mt19937 random(seed);
  const std::vector<ParameterSpec> first = Specs(tp, 0);
  const std::vector<StoredParameter> stored = Stored(first);
  CheckpointWriter writer(directory, Header(step), stored);
  for (int64_t rank = 0; rank < tp; ++rank) {
    for (const ParameterSpec& spec : Specs(tp, rank)) {
      if (spec.name == "norm.weight" && rank > 0) continue;  // the same on every rank
      for (const char* slot : kSlots) {
        std::vector<float> values = Local(slot, spec);
        for (size_t begin = 0; begin < values.size();) {
          const size_t count = std::min<size_t>(1 + random() % 30, values.size() - begin);
          writer.Write(
              slot, {&spec, static_cast<int64_t>(begin), std::span(values).subspan(begin, count)});
          begin += count;
        }
      }
    }
  }
  writer.Finish();
}

/// Reads every parameter, as rank 0 of `tp` holds it.
inline void ReadAll(const std::string& directory, int64_t tp,
                    CheckpointParts parts = CheckpointParts::kAll) {
  const CheckpointReader reader(directory, parts);
  for (const ParameterSpec& spec : Specs(tp, 0)) {
    for (const char* slot : kSlots) {
      if (std::string_view(slot) != kWeightSlot && parts == CheckpointParts::kWeights) continue;
      std::vector<float> values(static_cast<size_t>(spec.rows * spec.columns), -1.0f);
      reader.Read(slot, {&spec, 0, values});
      EXPECT_EQ(values, Local(slot, spec));
    }
  }
}

inline void ExpectReadableAs(const std::string& directory, int64_t tp) {
  const CheckpointReader reader(directory);
  for (int64_t rank = 0; rank < tp; ++rank) {
    for (const ParameterSpec& spec : Specs(tp, rank)) {
      for (const char* slot : kSlots) {
        std::vector<float> values(static_cast<size_t>(spec.rows * spec.columns), -1.0f);
        const size_t middle = values.size() / 3;
        reader.Read(slot, {&spec, 0, std::span(values).first(middle)});
        reader.Read(slot, {&spec, static_cast<int64_t>(middle), std::span(values).subspan(middle)});
        EXPECT_EQ(values, Local(slot, spec)) << spec.name << " tp " << tp << " rank " << rank;
      }
    }
  }
}

}  // namespace trimtab
