#include "engine/checkpoint/checkpoint.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/checkpoint/xxh64.h"
#include "tests/engine/checkpoint/checkpoint_cases.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

TEST(SliceRuns, CoverEveryElementOfEveryLayoutOnce) {
  for (const int64_t tp : {1, 2, 4, 8}) {
    for (const ParameterSpec& whole : Specs(1, 0)) {
      const int64_t numel = whole.partition.full_rows * whole.partition.full_columns;
      std::vector<int> hits(static_cast<size_t>(numel));
      for (int64_t rank = 0; rank < tp; ++rank) {
        for (const ParameterSpec& spec : Specs(tp, rank)) {
          if (spec.name != whole.name) continue;
          if (spec.name == "norm.weight" && rank > 0) continue;
          ForEachRun(spec, 0, spec.rows * spec.columns, [&](int64_t, int64_t full, int64_t count) {
            for (int64_t i = 0; i < count; ++i) ++hits[static_cast<size_t>(full + i)];
          });
        }
      }
      EXPECT_EQ(hits, std::vector<int>(static_cast<size_t>(numel), 1))
          << whole.name << " tp " << tp;
    }
  }
}

TEST(Checkpoint, AnyLayoutReadsWhatAnyOtherWrote) {
  const std::string directory = ScratchFolder() + "/checkpoint";
  for (const int64_t writer : {1, 2, 4, 8}) {
    WriteAs(directory, writer, static_cast<uint32_t>(writer));
    for (const int64_t reader : {1, 2, 4, 8}) ExpectReadableAs(directory, reader);
  }
}

TEST(Checkpoint, TheLayoutDoesNotShowInTheFiles) {
  const std::string folder = ScratchFolder();
  WriteAs(folder + "/one", 1, 1);
  WriteAs(folder + "/eight", 8, 2);
  for (const char* name : {"/weights.safetensors", "/optimizer.safetensors", "/weights.checksums",
                           "/optimizer.checksums", "/checkpoint.json"}) {
    EXPECT_EQ(ReadBytes(folder + "/one" + name), ReadBytes(folder + "/eight" + name)) << name;
  }
}

TEST(Checkpoint, KeepsTheRunAndThePosition) {
  const std::string directory = ScratchFolder() + "/new/folders/checkpoint/";
  WriteAs(directory, 2, 1, 123);
  const CheckpointReader reader(directory);
  EXPECT_EQ(reader.header().run, Header(123).run);
  EXPECT_EQ(reader.header().step, 123);
  EXPECT_EQ(reader.header().samples, 492);
  EXPECT_EQ(reader.header().tokens, "synthetic tokens");
}

// Not every header names the data: the key is optional.
TEST(Checkpoint, OneThatDoesNotNameItsDataIsRead) {
  const std::string directory = ScratchFolder() + "/checkpoint";
  WriteAs(directory, 2, 1);
  nlohmann::json root = nlohmann::json::parse(ReadBytes(directory + "/checkpoint.json"));
  ASSERT_EQ(root.erase("tokens"), 1u);
  root.erase("xxh64");
  const std::string text = root.dump();
  root["xxh64"] = Xxh64Hex(std::as_bytes(std::span(text)));
  WriteBytes(directory + "/checkpoint.json", root.dump(1) + "\n");
  ExpectReadableAs(directory, 4);
  const CheckpointReader reader(directory);
  EXPECT_EQ(reader.header().tokens, "");
  EXPECT_EQ(reader.header().run, Header(7).run);
  EXPECT_EQ(StepOfCheckpoint(directory), 7);
}

TEST(Checkpoint, ReplacesTheOneBefore) {
  const std::string folder = ScratchFolder();
  WriteAs(folder + "/checkpoint", 2, 1, 5);
  WriteAs(folder + "/checkpoint", 4, 1, 6);
  EXPECT_EQ(CheckpointReader(folder + "/checkpoint").header().step, 6);
  EXPECT_FALSE(std::filesystem::exists(folder + "/checkpoint.tmp"));
}

TEST(Checkpoint, AnUnfinishedOneChangesNothing) {
  const std::string folder = ScratchFolder();
  WriteAs(folder + "/checkpoint", 2, 1, 5);
  const std::vector<ParameterSpec> specs = Specs(1, 0);
  {
    const std::vector<StoredParameter> stored = {{&specs[0], {"m", "v"}}};
    CheckpointWriter writer(folder + "/checkpoint", Header(6), stored);
    EXPECT_TRUE(std::filesystem::exists(folder + "/checkpoint.tmp"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder + "/checkpoint.tmp"));
  EXPECT_EQ(CheckpointReader(folder + "/checkpoint").header().step, 5);
}

TEST(Checkpoint, ALeftoverOfACrashIsNoObstacle) {
  const std::string folder = ScratchFolder();
  std::filesystem::create_directories(folder + "/checkpoint.tmp");
  WriteBytes(folder + "/checkpoint.tmp/weights.safetensors", "half");
  WriteAs(folder + "/checkpoint", 2, 1, 5);
  EXPECT_EQ(CheckpointReader(folder + "/checkpoint").header().step, 5);
}

// What stands where a save puts its files is not always what a save has left.
TEST(Checkpoint, NothingElseBesideItIsReplaced) {
  for (const char* suffix : {".tmp", ".old"}) {
    const std::string path = ScratchFolder() + "/checkpoint";
    std::filesystem::create_directories(path + suffix);
    WriteBytes(path + suffix + "/notes", "precious");
    const std::string message = MessageOf<StorageError>([&] { WriteAs(path, 2, 1, 5); });
    EXPECT_EQ(message.find(path + suffix + ": holds 'notes'"), 0u) << message;
    EXPECT_EQ(ReadBytes(path + suffix + "/notes"), "precious");
    std::filesystem::remove_all(path + suffix);
    WriteBytes(path + suffix, "precious");
    EXPECT_EQ(MessageOf<StorageError>([&] { WriteAs(path, 2, 1, 5); }).find(path + suffix), 0u);
    EXPECT_EQ(ReadBytes(path + suffix), "precious");
  }
}

// Whatever moment of a save the process died in.
TEST(Checkpoint, TheNewestWholeOneIsFound) {
  const std::string folder = ScratchFolder();
  const std::string path = folder + "/checkpoint";
  EXPECT_EQ(NewestCheckpoint(path), "");
  WriteAs(path, 2, 1, 5);
  EXPECT_EQ(NewestCheckpoint(path), path);
  std::filesystem::create_directories(path + ".tmp");
  WriteBytes(path + ".tmp/weights.safetensors", "half");
  EXPECT_EQ(NewestCheckpoint(path), path) << "a save was cut short";
  std::filesystem::remove_all(path + ".tmp");
  WriteAs(path + ".tmp", 2, 1, 6);
  EXPECT_EQ(NewestCheckpoint(path), path + ".tmp") << "it was whole, and not in place yet";
  WriteBytes(path + ".tmp/weights.safetensors", "damaged");
  EXPECT_EQ(NewestCheckpoint(path), path) << "falls back by one";
  std::filesystem::rename(path, path + ".old");
  EXPECT_EQ(NewestCheckpoint(path), path + ".old") << "between two renames";
  WriteBytes(path + ".old/optimizer.safetensors", "damaged");
  EXPECT_THROW(NewestCheckpoint(path), StorageError) << "nothing whole is left";
}

TEST(Checkpoint, TheNewestIsFoundBehindASlashAndALink) {
  const std::string folder = ScratchFolder();
  const std::string path = folder + "/checkpoint";
  WriteAs(path, 2, 1, 5);
  WriteAs(path + ".tmp", 2, 1, 6);
  std::filesystem::create_directory_symlink(path, folder + "/link");
  EXPECT_EQ(NewestCheckpoint(path + "//"), path + ".tmp");
  EXPECT_EQ(NewestCheckpoint(folder + "/link"), std::filesystem::canonical(path).string() + ".tmp");
}

TEST(Checkpoint, WhatASaveLeftIsPutInPlace) {
  const std::string folder = ScratchFolder();
  const std::string path = folder + "/checkpoint";
  for (const char* suffix : {"", ".tmp", ".old"}) {
    for (const bool something_there : {false, true}) {
      for (const char* each : {"", ".tmp", ".old"}) std::filesystem::remove_all(path + each);
      if (something_there) WriteAs(path, 2, 1, 5);
      WriteAs(path + suffix, 2, 1, 6);
      EXPECT_TRUE(ContinuesCheckpoint(path + suffix, path + "/"));
      PutInPlace(path + suffix, path + "/");
      EXPECT_EQ(CheckpointReader(path).header().step, 6) << suffix;
      EXPECT_FALSE(std::filesystem::exists(path + ".tmp")) << suffix;
      EXPECT_FALSE(std::filesystem::exists(path + ".old")) << suffix;
    }
  }
  EXPECT_FALSE(ContinuesCheckpoint(path, folder + "/other"));
}

TEST(Checkpoint, OneThatWasNamedAlthoughANewerIsThereReplacesNothing) {
  const std::string path = ScratchFolder() + "/checkpoint";
  WriteAs(path, 2, 1, 6);
  WriteAs(path + ".old", 2, 1, 5);
  EXPECT_FALSE(ContinuesCheckpoint(path + ".old", path));
  EXPECT_TRUE(ContinuesCheckpoint(path, path));
  WriteBytes(path + "/weights.safetensors", "damaged");
  EXPECT_TRUE(ContinuesCheckpoint(path + ".old", path));
}

TEST(Checkpoint, AnEmptiedHeaderIsDamageAndNotNothing) {
  const std::string folder = ScratchFolder();
  WriteAs(folder + "/checkpoint", 2, 1, 5);
  WriteBytes(folder + "/checkpoint/checkpoint.json", "");
  EXPECT_THROW(NewestCheckpoint(folder + "/checkpoint"), StorageError);
}

TEST(Checkpoint, NeverReplacesWhatIsNotACheckpoint) {
  const std::string folder = ScratchFolder();
  WriteBytes(folder + "/file", "x");
  std::filesystem::create_directories(folder + "/home");
  WriteBytes(folder + "/home/letter.txt", "dear");
  EXPECT_NE(MessageOf<StorageError>([&] { WriteAs(folder + "/file", 1, 1); }).find("not a folder"),
            std::string::npos);
  EXPECT_NE(MessageOf<StorageError>([&] { WriteAs(folder + "/home", 1, 1); }).find("letter.txt"),
            std::string::npos);
  EXPECT_EQ(ReadBytes(folder + "/home/letter.txt"), "dear");
  // Names alone do not make it one.
  std::filesystem::create_directories(folder + "/vocabulary");
  WriteBytes(folder + "/vocabulary/tokenizer.json", "{}");
  EXPECT_THROW(WriteAs(folder + "/vocabulary", 1, 1), StorageError);
  EXPECT_EQ(ReadBytes(folder + "/vocabulary/tokenizer.json"), "{}");
}

TEST(Checkpoint, FollowsALinkToItsFolder) {
  const std::string folder = ScratchFolder();
  WriteAs(folder + "/real", 2, 1, 5);
  std::filesystem::create_directory_symlink(folder + "/real", folder + "/link");
  WriteAs(folder + "/link", 2, 1, 6);
  EXPECT_TRUE(std::filesystem::is_symlink(folder + "/link"));
  EXPECT_EQ(CheckpointReader(folder + "/real").header().step, 6);
  std::filesystem::create_directory_symlink(folder + "/nowhere", folder + "/broken");
  EXPECT_THROW(WriteAs(folder + "/broken", 2, 1, 7), StorageError);
}

TEST(Checkpoint, AFullDiskLeavesTheOneBefore) {
  const std::string folder = ScratchFolder();
  WriteAs(folder + "/checkpoint", 2, 1, 5);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  // From "no file may grow" to "one byte is missing in one file".
  const rlim_t weights = std::filesystem::file_size(folder + "/checkpoint/weights.safetensors");
  const rlim_t optimizer = std::filesystem::file_size(folder + "/checkpoint/optimizer.safetensors");
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{100}, weights - 1, optimizer - 1}) {
    const rlimit limit = {bytes, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    EXPECT_THROW(WriteAs(folder + "/checkpoint", 2, 1, 6), StorageError) << bytes;
    setrlimit(RLIMIT_FSIZE, &old);
    EXPECT_FALSE(std::filesystem::exists(folder + "/checkpoint.tmp")) << bytes;
    EXPECT_EQ(CheckpointReader(folder + "/checkpoint").header().step, 5) << bytes;
  }
  std::signal(SIGXFSZ, handler);
}

TEST(Checkpoint, RefusesDamageAnywhere) {
  const std::string directory = ScratchFolder() + "/checkpoint";
  WriteAs(directory, 2, 1);
  const auto read = [&directory] { ReadAll(directory, 1); };
  for (const std::string name : {"checkpoint.json", "weights.safetensors", "optimizer.safetensors",
                                 "weights.checksums", "optimizer.checksums"}) {
    const std::string path = directory + "/" + name;
    const std::string bytes = ReadBytes(path);
    for (size_t i = 0; i < 40; ++i) {
      std::string damaged = bytes;
      const size_t at = i * (bytes.size() - 2) / 39;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
      WriteBytes(path, damaged);
      const std::string message = MessageOf<StorageError>(read);
      EXPECT_NE(message.find(name), std::string::npos) << message << " byte " << at;
    }
    WriteBytes(path, bytes.substr(0, bytes.size() / 2));
    EXPECT_NE(MessageOf<StorageError>([&] { CheckpointReader{directory}; }).find(path),
              std::string::npos);
    std::filesystem::remove(path);
    EXPECT_NE(MessageOf<StorageError>([&] { CheckpointReader{directory}; }).find(path),
              std::string::npos);
    WriteBytes(path, bytes);
  }
  ExpectReadableAs(directory, 2);
}

TEST(Checkpoint, RefusesATensorOfAnotherShape) {
  const std::string directory = ScratchFolder() + "/checkpoint";
  WriteAs(directory, 1, 1);
  const CheckpointReader reader(directory);
  ParameterSpec spec = Specs(1, 0)[4];
  spec.partition.full_rows = 8;
  std::vector<float> values(7);
  EXPECT_NE(MessageOf<InputError>([&] {
              reader.Read(kWeightSlot, {&spec, 0, values});
            }).find("fp32 [7]; expected fp32 [8]"),
            std::string::npos);
  spec.name = "other";
  EXPECT_NE(MessageOf<InputError>([&] {
              reader.Read(kWeightSlot, {&spec, 0, values});
            }).find("no tensor 'other'"),
            std::string::npos);
}

TEST(Checkpoint, ListsTheSlotsThatEachParameterHas) {
  const std::string directory = ScratchFolder() + "/checkpoint";
  const std::vector<ParameterSpec> specs = Specs(1, 0);
  std::vector<StoredParameter> stored;
  for (const ParameterSpec& spec : specs) stored.push_back({&spec, {}});
  stored[1].slots = {"momentum"};
  stored[3].slots = {"m", "momentum"};
  CheckpointWriter writer(directory, Header(1), stored);
  for (const StoredParameter& each : stored) {
    std::vector<float> values = Local(kWeightSlot, *each.spec);
    writer.Write(kWeightSlot, {each.spec, 0, values});
    for (const std::string& slot : each.slots) writer.Write(slot, {each.spec, 0, values});
  }
  writer.Finish();
  EXPECT_EQ(nlohmann::json::parse(ReadBytes(directory + "/checkpoint.json")).at("slots"),
            nlohmann::json({"momentum", "m"}));
  const SafetensorsReader state(directory + "/optimizer.safetensors");
  EXPECT_EQ(state.entries().size(), 3u);
  const CheckpointReader reader(directory);
  std::vector<float> values(static_cast<size_t>(specs[1].rows * specs[1].columns));
  reader.Read("momentum", {&specs[1], 0, values});
  EXPECT_EQ(values, Local(kWeightSlot, specs[1]));
  const auto message = [&](const char* slot) {
    return MessageOf<InputError>([&] { reader.Read(slot, {&specs[1], 0, values}); });
  };
  EXPECT_EQ(message("v"),
            "the checkpoint's optimizer state is momentum, m of each parameter; expected v, as the "
            "run's optimizer keeps");
  EXPECT_NE(message("m").find("no tensor 'm.qkv.weight'"), std::string::npos);
}

}  // namespace
}  // namespace trimtab
