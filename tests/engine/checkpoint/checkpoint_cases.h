// Checkpoints of a small model, written and read as the ranks of a layout do.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/slice_runs.h"
#include "engine/families/load_config.h"

namespace trimtab {

inline constexpr std::array<StateKind, 3> kKinds = {StateKind::kWeight, StateKind::kFirstMoment,
                                                    StateKind::kSecondMoment};

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
inline float Expected(StateKind kind, const ParameterSpec& spec, int64_t full) {
  return static_cast<float>(static_cast<int>(kind) * 100000 + spec.name.size() * 1000 +
                            static_cast<size_t>(full));
}

/// The local shard of a spec; padding holds -1.
inline std::vector<float> Local(StateKind kind, const ParameterSpec& spec) {
  std::vector<float> values(static_cast<size_t>(spec.rows * spec.columns), -1.0f);
  ForEachRun(spec, 0, spec.rows * spec.columns, [&](int64_t local, int64_t full, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      values[static_cast<size_t>(local + i)] = Expected(kind, spec, full + i);
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

/// Writes as `tp` ranks would, each shard cut into pieces at random places (as zero 1 cuts it).
inline void WriteAs(const std::string& directory, int64_t tp, uint32_t seed, int64_t step = 7) {
  std::mt19937 random(seed);
  const std::vector<ParameterSpec> first = Specs(tp, 0);
  std::vector<const ParameterSpec*> pointers;
  for (const ParameterSpec& spec : first) pointers.push_back(&spec);
  CheckpointWriter writer(directory, Header(step), pointers);
  for (int64_t rank = 0; rank < tp; ++rank) {
    for (const ParameterSpec& spec : Specs(tp, rank)) {
      if (spec.name == "norm.weight" && rank > 0) continue;  // the same on every rank
      for (const StateKind kind : kKinds) {
        std::vector<float> values = Local(kind, spec);
        for (size_t begin = 0; begin < values.size();) {
          const size_t count = std::min<size_t>(1 + random() % 30, values.size() - begin);
          writer.Write(
              kind, {&spec, static_cast<int64_t>(begin), std::span(values).subspan(begin, count)});
          begin += count;
        }
      }
    }
  }
  writer.Finish();
}

/// Reads every parameter, as rank 0 of `tp` holds it. Returns the bytes that were checked.
inline int64_t ReadAll(const std::string& directory, int64_t tp,
                       CheckpointParts parts = CheckpointParts::kAll) {
  const CheckpointReader reader(directory, parts);
  for (const ParameterSpec& spec : Specs(tp, 0)) {
    for (const StateKind kind : kKinds) {
      if (kind != StateKind::kWeight && parts == CheckpointParts::kWeights) continue;
      std::vector<float> values(static_cast<size_t>(spec.rows * spec.columns), -1.0f);
      reader.Read(kind, {&spec, 0, values});
      EXPECT_EQ(values, Local(kind, spec));
    }
  }
  return reader.checked_bytes();
}

inline void ExpectReadableAs(const std::string& directory, int64_t tp) {
  const CheckpointReader reader(directory);
  for (int64_t rank = 0; rank < tp; ++rank) {
    for (const ParameterSpec& spec : Specs(tp, rank)) {
      for (const StateKind kind : kKinds) {
        std::vector<float> values(static_cast<size_t>(spec.rows * spec.columns), -1.0f);
        const size_t middle = values.size() / 3;
        reader.Read(kind, {&spec, 0, std::span(values).first(middle)});
        reader.Read(kind, {&spec, static_cast<int64_t>(middle), std::span(values).subspan(middle)});
        EXPECT_EQ(values, Local(kind, spec)) << spec.name << " tp " << tp << " rank " << rank;
      }
    }
  }
}

}  // namespace trimtab
