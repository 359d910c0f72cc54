// Checksums of tiles: by themselves, and in checkpoints.
#include "engine/checkpoint/tile_sums.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/checkpoint/xxh64.h"
#include "tests/engine/checkpoint/checkpoint_cases.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

/// Entries of a few shapes and types, laid out.
std::vector<SafetensorsEntry> SomeEntries() {
  std::vector<SafetensorsEntry> entries = {
      {.name = "matrix", .shape = {130, 2050}},
      {.name = "bytes", .dtype = DType::kI8, .shape = {3, 70000}},
      {.name = "vector", .dtype = DType::kBf16, .shape = {2500}},
      {.name = "column", .shape = {70000, 1}},
      {.name = "nothing", .shape = {0, 4}}};
  LayOutSafetensors(entries, {});
  return entries;
}

std::vector<std::byte> Content(const SafetensorsEntry& entry) {
  std::mt19937 random(7);
  std::vector<std::byte> content(static_cast<size_t>(entry.end - entry.begin));
  for (std::byte& each : content) each = static_cast<std::byte>(random());
  return content;
}

TEST(TileGrid, RunsOfTheTilesAreTheTensorOnce) {
  for (const SafetensorsEntry& entry : SomeEntries()) {
    const TileGrid grid(entry);
    std::vector<std::pair<int64_t, int64_t>> places(static_cast<size_t>(entry.numel()));
    grid.ForEachRun(0, entry.numel(), [&](int64_t tile, int64_t within, int64_t first, int64_t n) {
      for (int64_t i = 0; i < n; ++i) places[static_cast<size_t>(first + i)] = {tile, within + i};
    });
    int64_t visited = 0;
    for (int64_t tile = 0; tile < grid.count(); ++tile) {
      int64_t elements = 0;
      grid.ForEachRunOf(tile, [&](int64_t within, int64_t first, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          const std::pair<int64_t, int64_t> expected = {tile, within + i};
          ASSERT_EQ(places[static_cast<size_t>(first + i)], expected) << entry.name;
        }
        elements += n;
      });
      EXPECT_LE(elements, 65536);
      visited += elements;
    }
    EXPECT_EQ(visited, entry.numel()) << entry.name;
  }
}

TEST(TileSums, AreTheSameInWhateverPartsTheyAreAdded) {
  const std::vector<SafetensorsEntry> entries = SomeEntries();
  TileSums whole(entries);
  TileSums parts(entries);
  TileSums others(entries);
  std::mt19937 random(3);
  for (const SafetensorsEntry& entry : entries) {
    const std::vector<std::byte> content = Content(entry);
    whole.Add(entry, 0, content);
    const int64_t bytes = SizeOf(*entry.dtype);
    for (int64_t begin = 0; begin < entry.numel();) {
      const int64_t count = std::min<int64_t>(1 + random() % 5000, entry.numel() - begin);
      (random() % 2 == 0 ? parts : others)
          .Add(entry, begin,
               std::span(content).subspan(static_cast<size_t>(begin * bytes),
                                          static_cast<size_t>(count * bytes)));
      begin += count;
    }
  }
  parts.Add(others.Placed());
  EXPECT_TRUE(std::ranges::equal(whole.bytes(), parts.bytes()));
}

TEST(TileChecks, EveryDamagedOrSwappedElementIsFound) {
  const std::vector<SafetensorsEntry> entries = SomeEntries();
  TileSums sums(entries);
  for (const SafetensorsEntry& entry : entries) sums.Add(entry, 0, Content(entry));
  std::mt19937 random(5);
  for (const SafetensorsEntry& entry : entries) {
    if (entry.numel() == 0) continue;
    const std::vector<std::byte> content = Content(entry);
    const auto check = [&](std::span<const std::byte> stored) {
      TileChecks checks(entries, sums.bytes(), "sums");
      checks.Check(entry, stored, 0, entry.numel(), "file");
    };
    EXPECT_NO_THROW(check(content));
    for (int i = 0; i < 10; ++i) {
      std::vector<std::byte> damaged = content;
      damaged[random() % damaged.size()] ^= static_cast<std::byte>(1 << random() % 8);
      EXPECT_THROW(check(damaged), StorageError) << entry.name;
    }
    std::vector<std::byte> swapped = content;
    const auto bytes = static_cast<std::ptrdiff_t>(SizeOf(*entry.dtype));
    std::swap_ranges(swapped.begin(), swapped.begin() + bytes, swapped.begin() + 8 * bytes);
    ASSERT_NE(swapped, content);
    EXPECT_THROW(check(swapped), StorageError) << entry.name;
  }
  EXPECT_THROW(TileChecks(entries, sums.bytes().first(8), "sums"), InputError);
}

/// Makes the folder one of version 1: checksums of whole files.
void MakeOld(const std::string& directory) {
  nlohmann::json root = nlohmann::json::parse(ReadBytes(directory + "/checkpoint.json"));
  root["schema_version"] = 1;
  root.erase("xxh64");
  for (const std::string name : {"weights", "optimizer"}) {
    const std::string content = ReadBytes(directory + "/" + name + ".safetensors");
    root["files"].erase(name + ".checksums");
    root["files"][name + ".safetensors"] = {{"bytes", content.size()},
                                            {"xxh64", Xxh64Hex(std::as_bytes(std::span(content)))}};
    std::filesystem::remove(directory + "/" + name + ".checksums");
  }
  const std::string text = root.dump();
  root["xxh64"] = Xxh64Hex(std::as_bytes(std::span(text)));
  WriteBytes(directory + "/checkpoint.json", root.dump(1) + "\n");
}

TEST(Checkpoint, AnOlderOneIsReadAndRefusedWhereDamaged) {
  const std::string directory = ScratchFolder() + "/checkpoint";
  WriteAs(directory, 4, 1);
  MakeOld(directory);
  ExpectReadableAs(directory, 2);
  for (const std::string name : {"optimizer", "weights"}) {
    const std::string path = directory + "/" + name + ".safetensors";
    std::string bytes = ReadBytes(path);
    bytes.back() ^= 1;
    WriteBytes(path, bytes);
    EXPECT_NE(MessageOf<StorageError>([&] { CheckpointReader{directory}; }).find(path),
              std::string::npos);
    if (name == "optimizer") ReadAll(directory, 2, CheckpointParts::kWeights);
  }
}

TEST(Checkpoint, WeightsAreReadWhateverBecameOfTheOptimizersFiles) {
  const std::string directory = ScratchFolder() + "/checkpoint";
  WriteAs(directory, 2, 1);
  std::filesystem::remove(directory + "/optimizer.safetensors");
  WriteBytes(directory + "/optimizer.checksums", "damaged");
  ReadAll(directory, 2, CheckpointParts::kWeights);
  EXPECT_THROW(CheckpointReader{directory}, StorageError);
}

/// A matrix of 1024 x 4096 elements, 16 MiB, as rank `rank` of `tp` holds it.
ParameterSpec LargeSpec(bool columns, int64_t tp, int64_t rank) {
  ParameterSpec spec;
  spec.name = "large.weight";
  spec.is_matrix = true;
  spec.rows = columns ? 1024 : 1024 / tp;
  spec.columns = columns ? 4096 / tp : 4096;
  spec.partition =
      columns ? ColumnPartition(1024, 4096, tp, rank) : RowBlocksPartition({1024}, 4096, tp, rank);
  return spec;
}

void WriteLarge(const std::string& directory) {
  const ParameterSpec spec = LargeSpec(false, 1, 0);
  const std::vector<StoredParameter> stored = {{&spec, {"m", "v"}}};
  CheckpointWriter writer(directory, Header(1), stored);
  for (const char* slot : kSlots) {
    std::vector<float> values = Local(slot, spec);
    writer.Write(slot, {&spec, 0, values});
  }
  writer.Finish();
}

/// Turns a bit of an element of the large matrix in its file, without replacing the file.
void Damage(const std::string& directory, int64_t row, int64_t column) {
  std::fstream file(directory + "/weights.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-(1024 * 4096 - row * 4096 - column) * 4, std::ios::end);
  const auto place = file.tellg();
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(place).put(byte);
}

// A rank compares what it reads and no more, whichever way the tensor is cut; each tile once.
TEST(Checkpoint, ARankChecksItsShareOnly) {
  const std::string directory = ScratchFolder() + "/checkpoint";
  WriteLarge(directory);
  for (const bool columns : {false, true}) {
    for (const int64_t tp : {1, 2, 4}) {
      const ParameterSpec spec = LargeSpec(columns, tp, tp - 1);
      std::vector<float> values(static_cast<size_t>(spec.rows * spec.columns));
      // An element of every fifth tile of 64 x 1024.
      for (int64_t tile = 0; tile < 64; tile += 5) {
        const int64_t row = tile / 4 * 64 + tile;
        const int64_t column = tile % 4 * 1024 + 7 * tile;
        const bool is_read = columns ? column >= 4096 - 4096 / tp : row >= 1024 - 1024 / tp;
        const CheckpointReader reader(directory);
        Damage(directory, row, column);
        const auto read = [&] { reader.Read(kWeightSlot, {&spec, 0, values}); };
        if (is_read) {
          EXPECT_THROW(read(), StorageError) << columns << " " << tp << " " << tile;
        } else {
          EXPECT_NO_THROW(read()) << columns << " " << tp << " " << tile;
        }
        Damage(directory, row, column);
        EXPECT_NO_THROW(read());
        EXPECT_EQ(values, Local(kWeightSlot, spec));
        Damage(directory, row, column);
        EXPECT_NO_THROW(read()) << "compared already";
        Damage(directory, row, column);
      }
    }
  }
}

// Checksums are of what was handed over: the files are not read again when they are finished.
TEST(Checkpoint, WhatTheDiskMadeOfItIsFoundWhenItIsRead) {
  const std::string directory = ScratchFolder() + "/checkpoint";
  const ParameterSpec spec = LargeSpec(false, 1, 0);
  const std::vector<StoredParameter> stored = {{&spec, {"m", "v"}}};
  CheckpointWriter writer(directory, Header(1), stored);
  for (const char* slot : kSlots) {
    std::vector<float> values = Local(slot, spec);
    writer.Write(slot, {&spec, 0, values});
  }
  const std::string path = directory + ".tmp/weights.safetensors";
  File file = File::OpenForWriting(path);
  const auto half = static_cast<int64_t>(std::filesystem::file_size(path)) - 512 * 4096 * 4;
  const float wrong = -1;
  file.WriteAt(half, std::as_bytes(std::span(&wrong, 1)));  // row 512, column 0
  file.Close();
  writer.Finish();
  const CheckpointReader reader(directory);
  std::vector<float> values(static_cast<size_t>(256 * 4096));
  const auto read = [&](int64_t rank) {
    const ParameterSpec part = LargeSpec(false, 4, rank);
    reader.Read(kWeightSlot, {&part, 0, values});
  };
  for (const int64_t rank : {0, 1, 3}) read(rank);
  EXPECT_NE(MessageOf<StorageError>([&] { read(2); })
                .find("weights.safetensors: tensor 'large.weight', rows 512 to 575, columns 0 to "
                      "1023: checksum"),
            std::string::npos);
}

// Processes hand each other what they wrote; the sums do not depend on who wrote what.
TEST(Checkpoint, SeveralWritersLeaveTheFilesOfOne) {
  const std::string folder = ScratchFolder();
  WriteAs(folder + "/one", 4, 1);
  const std::vector<ParameterSpec> first = Specs(4, 0);
  const std::vector<StoredParameter> stored = Stored(first);
  std::vector<std::unique_ptr<CheckpointWriter>> writers;
  for (int64_t rank = 0; rank < 4; ++rank) {
    writers.push_back(std::make_unique<CheckpointWriter>(
        folder + "/four", Header(7), stored, rank == 0 ? FileRole::kMake : FileRole::kJoin));
    for (const ParameterSpec& spec : Specs(4, rank)) {
      if (spec.name == "norm.weight" && rank > 0) continue;
      for (const char* slot : kSlots) {
        std::vector<float> values = Local(slot, spec);
        writers.back()->Write(slot, {&spec, 0, values});
      }
    }
    if (rank > 0) writers.back()->Finish();
  }
  writers[2]->AddReceipt(writers[3]->Receipt());
  writers[0]->AddReceipt(writers[1]->Receipt());
  writers[0]->AddReceipt(writers[2]->Receipt());
  writers[0]->Finish();
  for (const char* name : {"/weights.safetensors", "/optimizer.safetensors", "/weights.checksums",
                           "/optimizer.checksums", "/checkpoint.json"}) {
    EXPECT_EQ(ReadBytes(folder + "/one" + name), ReadBytes(folder + "/four" + name)) << name;
  }
}

}  // namespace
}  // namespace trimtab
