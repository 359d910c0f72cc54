#include "engine/checkpoint/checkpoint_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/checkpoint/xxh64.h"
#include "engine/families/load_config.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr int kSchemaVersion = 2;
// Checksums of whole files only.
constexpr int kOldestSchemaVersion = 1;

/// Checksum of the document without the member that holds it.
std::string DocumentChecksum(json document) {
  document.erase("xxh64");
  const std::string text = document.dump();
  return Xxh64Hex(std::as_bytes(std::span(text)));
}

json TensorsToJson(const std::vector<SafetensorsEntry>& tensors) {
  json list = json::array();
  for (const SafetensorsEntry& tensor : tensors) {
    list.push_back({{"name", tensor.name}, {"dtype", Name(DType::kF32)}, {"shape", tensor.shape}});
  }
  return list;
}

/// Adds what only some models, precisions and savers have.
void PutOptionalState(const CheckpointHeader& header, json& root) {
  if (!header.tokens.empty()) root["tokens"] = header.tokens;
  if (!header.buffers.empty()) root["buffers"] = header.buffers;
  const LossScaleState& scale = header.loss_scale;
  if (scale.scale > 0) {
    root["loss_scale"] = {
        {"scale", scale.scale}, {"good_steps", scale.good_steps}, {"skipped", scale.skipped}};
  }
  const Fp8Snapshot& fp8 = header.fp8;
  if (fp8.history > 0) {
    root["fp8"] = {{"layers", fp8.layers},
                   {"history", fp8.history},
                   {"amax", fp8.amax},
                   {"scale", fp8.scale},
                   {"inverse", fp8.inverse}};
  }
}

void TakeOptionalState(const json& root, const std::string& path, CheckpointHeader& header) {
  if (root.contains("tokens")) root["tokens"].get_to(header.tokens);
  if (root.contains("buffers")) root["buffers"].get_to(header.buffers);
  if (root.contains("loss_scale")) {
    const json& scale = root["loss_scale"];
    header.loss_scale = {scale.at("scale").get<double>(), scale.at("good_steps").get<int64_t>(),
                         scale.at("skipped").get<int64_t>()};
  }
  if (!root.contains("fp8")) return;
  const json& state = root["fp8"];
  Fp8Snapshot& fp8 = header.fp8;
  fp8.layers = state.at("layers").get<std::vector<std::string>>();
  fp8.history = state.at("history").get<int64_t>();
  fp8.amax = state.at("amax").get<std::vector<float>>();
  fp8.scale = state.at("scale").get<std::vector<float>>();
  fp8.inverse = state.at("inverse").get<std::vector<float>>();
  const size_t slots = 2 * fp8.layers.size();
  if (fp8.history < 1 || fp8.scale.size() != slots || fp8.inverse.size() != slots ||
      fp8.amax.size() != slots * static_cast<size_t>(fp8.history)) {
    throw InputError(
        fmt::format("{}: $.fp8: {} layers and {} steps do not fit the {} scales and "
                    "{} largest values",
                    path, fp8.layers.size(), fp8.history, fp8.scale.size(), fp8.amax.size()));
  }
}

CheckpointDocument FromJson(const json& root, const std::string& path) {
  CheckpointDocument document;
  document.header.step = root.at("step").get<int64_t>();
  document.header.samples = root.at("samples").get<int64_t>();
  document.header.run = RunConfigFromJson(root.at("run"), path + ": $.run");
  TakeOptionalState(root, path, document.header);
  for (const json& tensor : root.at("tensors")) {
    SafetensorsEntry entry;
    entry.name = tensor.at("name").get<std::string>();
    entry.shape = tensor.at("shape").get<std::vector<int64_t>>();
    if (tensor.at("dtype") != Name(DType::kF32)) {
      throw InputError(fmt::format("{}: tensor '{}' is not fp32", path, entry.name));
    }
    document.tensors.push_back(std::move(entry));
  }
  // What is older than the member has the moments of AdamW.
  document.slots = root.value("slots", std::vector<std::string>{"m", "v"});
  for (const auto& [name, file] : root.at("files").items()) {
    document.files[name] = {.bytes = file.at("bytes").get<int64_t>(),
                            .xxh64 = file.value("xxh64", ""),
                            .header_xxh64 = file.value("header_xxh64", "")};
  }
  return document;
}

}  // namespace

std::string CheckpointFolder(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  if (error) {
    throw StorageError(fmt::format("{}: a link to nowhere: {}", path, error.message()));
  }
  return target.string();
}

std::vector<std::string> CheckpointFileNames() {
  std::vector<std::string> names = {kHeaderFile, kWeightsFile, kOptimizerFile, kWeightsSumsFile,
                                    kOptimizerSumsFile};
  names.insert(names.end(), std::begin(kTokenizerFiles), std::end(kTokenizerFiles));
  return names;
}

FileDigest DigestOf(std::span<const std::byte> content) {
  return {.bytes = std::ssize(content), .xxh64 = Xxh64Hex(content)};
}

FileDigest DigestFile(const std::string& path) { return DigestOf(MappedFile(path).bytes()); }

std::string ToText(const CheckpointDocument& document) {
  json root = {{"schema_version", kSchemaVersion},
               {"step", document.header.step},
               {"samples", document.header.samples},
               {"run", ToJson(document.header.run)},
               {"tensors", TensorsToJson(document.tensors)},
               {"slots", document.slots},
               {"files", json::object()}};
  PutOptionalState(document.header, root);
  for (const auto& [name, digest] : document.files) {
    json& file = root["files"][name] = {{"bytes", digest.bytes}};
    if (!digest.xxh64.empty()) file["xxh64"] = digest.xxh64;
    if (!digest.header_xxh64.empty()) file["header_xxh64"] = digest.header_xxh64;
  }
  root["xxh64"] = DocumentChecksum(root);
  return root.dump(1) + "\n";
}

CheckpointDocument ParseCheckpointDocument(const std::string& text, const std::string& path) {
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) {
    throw InputError(fmt::format("{}: not a checkpoint header; expected a JSON object", path));
  }
  if (!root.contains("xxh64")) {
    throw InputError(fmt::format("{}: not a checkpoint header; it has no \"xxh64\"", path));
  }
  if (root["xxh64"] != DocumentChecksum(root)) {
    throw InputError(
        fmt::format("{}: checksum {} expected; the file was damaged or edited", path,
                    root["xxh64"].is_string() ? root["xxh64"].get<std::string>() : "in hex"));
  }
  const json version = root.value("schema_version", json());
  if (version != kSchemaVersion && version != kOldestSchemaVersion) {
    throw InputError(fmt::format("{}: schema_version {}; expected {} or {}", path, version.dump(),
                                 kOldestSchemaVersion, kSchemaVersion));
  }
  try {
    return FromJson(root, path);
  } catch (const json::exception& error) {
    throw InputError(fmt::format("{}: not a checkpoint header: {}", path, error.what()));
  }
}

std::string TensorName(std::string_view slot, const std::string& parameter) {
  return slot == kWeightSlot ? parameter : fmt::format("{}.{}", slot, parameter);
}

void RemoveCheckpointFolder(const std::string& directory) {
  std::error_code ignored;
  for (const std::string& name : CheckpointFileNames()) {
    std::filesystem::remove(directory + "/" + name, ignored);
  }
  std::filesystem::remove(directory, ignored);
}

}  // namespace trimtab
