#include "tests/tools/bad_input.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/run_cli.h"

namespace trimtab {
namespace {

/// Makes the files the cases below name.
void MakeFiles(const std::string& folder) {
  const auto write = [&](const char* name, const std::string& text) {
    WriteBytes(folder + "/" + name, text);
  };
  const std::string run = kTinyRun;
  write("run.json", run);
  write("truncated.json", run.substr(0, run.size() / 2));
  write("empty.json", "");
  write("list.json", "[1, 2]");
  write("deep.json", std::string(100000, '['));
  write("binary.json", std::string("\0\xff\xfe{", 4));
  write("mistyped.json",
        std::string(run).replace(run.find("\"global_batch\": 4"), 17, "\"global_batch\": \"4\""));
  write("range.json",
        std::string(run).replace(run.find("\"global_batch\": 4"), 17, "\"global_batch\": 0"));
  write("unknown.json", std::string(run).replace(run.find("global_batch"), 12, "globl_batch"));
  write("huge.json", "");
  std::filesystem::resize_file(folder + "/huge.json", uintmax_t{1} << 30);
  write("runs.json", R"({"schema_version": 1, "runs": []})");
  write("uneven.json", R"({"vocab_size": 9, "hidden_size": 40, "num_layers": 1, "num_heads": 40,
                           "num_kv_heads": 7, "max_sequence_length": 8})");
  write("noise.db", std::string(5000, 'x'));
  write("text.txt", "hello");
  write("bad.jsonl", "{\"text\": \"a\"}\n{\"txt\": \"b\"}\n");
  write("short.txt", "abc");
  std::string noise;  // that is not UTF-8 from its third byte on
  for (uint32_t i = 0, state = 1; i < 200000; ++i, state = state * 1664525 + 1013904223) {
    noise += static_cast<char>(state >> 24);
  }
  write("noise.bin", "ab\x80" + noise);
  write("nul.txt", std::string("a\0b", 3));
  write("torn.txt", "caf\xc3");
  write("latin1.jsonl", "{\"text\": \"a\"}\n{\"text\": \"caf\xe9\"}\n");
  write("array.json", "[{\"text\": \"a\"}, {\"text\": \"b\"}]\n");
  write("pretty.json", "{\n  \"text\": \"a\"\n}\n");
  MakeDataset(folder + "/data");
  MakeDataset(folder + "/cut");
  std::filesystem::resize_file(folder + "/cut.bin", 100);
  MakeDataset(folder + "/magic");
  write("magic.idx", "not an index, but long enough to hold a header");
  ASSERT_EQ(RunCli({"data", "build", "--input", folder + "/short.txt", "--out", folder + "/short"})
                .exit_code,
            0);
  std::filesystem::create_directories(folder + "/hollow");
  write("hollow/checkpoint.json", "{}");
  std::filesystem::create_directories(folder + "/quantized");
  write("quantized/quantized.json", "{}");
  write("quantized/weights.safetensors", "");
  write("tokenizer.model", "no tokenizer");
  write("array_of_runs.json", "[]");
  std::filesystem::create_directories(folder + "/letters");
  write("letters/letter.txt", "dear");
}

}  // namespace

void BadInputTest::SetUpTestSuite() {
  folder_ = std::string(std::getenv("TEST_TMPDIR")) + "/bad_input";
  std::filesystem::create_directories(folder_);
  MakeFiles(folder_);
}

void BadInputTest::ExpectRefused() const {
  std::vector<std::string> arguments = GetParam().arguments;
  for (std::string& argument : arguments) {
    if (argument.starts_with("@")) argument = folder_ + "/" + argument.substr(1);
  }
  if (!arguments.empty()) arguments.push_back("--quiet");
  const CliResult result = RunCli(arguments);
  EXPECT_EQ(result.exit_code, GetParam().exit_code) << result.err;
  EXPECT_NE(result.err.find(GetParam().says), std::string::npos) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_TRUE(result.err.starts_with("trimtab: ")) << result.err;
  EXPECT_EQ(result.out, "");
}

}  // namespace trimtab
