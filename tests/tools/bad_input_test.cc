// Everything a user can get wrong: the exit code, and one clear line on stderr.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/run_cli.h"
#include "tools/command.h"

namespace trimtab {
namespace {

struct BadInput {
  const char* name;
  std::vector<std::string> arguments;  // "@x" is the file or folder x of the scratch folder
  int exit_code;
  const char* says;
};

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
  std::filesystem::create_directories(folder + "/letters");
  write("letters/letter.txt", "dear");
}

class BadInputTest : public testing::TestWithParam<BadInput> {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::string(std::getenv("TEST_TMPDIR")) + "/bad_input";
    std::filesystem::create_directories(folder_);
    MakeFiles(folder_);
  }

  static inline std::string folder_;
};

TEST_P(BadInputTest, EndsWithItsCodeAndOneLine) {
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

INSTANTIATE_TEST_SUITE_P(
    Usage, BadInputTest,
    testing::Values(
        BadInput{"NoCommand", {}, 2, "expected a command"},
        BadInput{"UnknownCommand", {"trian"}, 2, "'trian'; did you mean 'train'?"},
        BadInput{"NoDataCommand", {"data"}, 2, "expected a command"},
        BadInput{"UnknownDataCommand", {"data", "bild"}, 2, "did you mean 'build'?"},
        BadInput{"UnknownFlag", {"train", "--modle", "x"}, 2, "did you mean '--model'?"},
        BadInput{"UnknownFlagWithValue", {"train", "--stepz=3"}, 2, "did you mean '--steps'?"},
        BadInput{"UnexpectedArgument", {"train", "now"}, 2, "unexpected argument 'now'"},
        BadInput{"FlagWithoutValue", {"train", "--model"}, 2, "--model"},
        BadInput{"MoreMemoryThanTheGpuHas",
                 {"estimate", "--model", "gpt2-tiny", "--gbs", "8", "--seq", "8", "--cluster",
                  "8xh100", "--memory-per-rank", "100GiB"},
                 2,
                 "--memory-per-rank: 100 GiB; a GPU of the cluster 8xh100 has 74.5 GiB"},
        BadInput{"FlagTwice", {"train", "--model", "a", "--model", "b"}, 2, "--model"},
        BadInput{"RequiredFlag", {"validate"}, 2, "--runs is required"},
        BadInput{"RequiredArgument", {"data", "info"}, 2, "PREFIX is required"},
        BadInput{"LoudAndQuiet", {"models", "-v"}, 2, "contradict"},
        BadInput{"NoModel", {"train"}, 2, "--model is missing"},
        BadInput{
            "NoSequence", {"train", "--model", "gpt2-tiny", "--gbs", "4"}, 2, "--seq is missing"},
        BadInput{"ConfigAndModel",
                 {"train", "--config", "@run.json", "--model", "gpt2-tiny"},
                 2,
                 "--model contradicts --config"},
        BadInput{
            "NotANumber", {"train", "--gbs", "many"}, 2, "--gbs: 'many' is not a whole number"},
        BadInput{"HalfANumber", {"train", "--gbs", "4x"}, 2, "--gbs: '4x'"},
        BadInput{"Zero", {"train", "--gbs", "0"}, 2, "--gbs: '0' is not a whole number from 1"},
        BadInput{"TooLarge", {"train", "--gbs", "99999999999999999999"}, 2, "--gbs"},
        BadInput{"NotFinite", {"train", "--lr", "nan"}, 2, "--lr: 'nan'"},
        BadInput{"UnknownChoice", {"search", "--objective", "speed"}, 2, "unknown value 'speed'"},
        BadInput{"UnknownColor", {"models", "--color", "alwys"}, 2, "did you mean 'always'?"},
        BadInput{"BadSize", {"train", "--memory-per-rank", "8XB"}, 2, "'8XB' is not a size"},
        BadInput{"UnknownModel", {"models", "gpt2-124"}, 2, "did you mean 'gpt2-124m'?"},
        BadInput{"UnknownCluster", {"clusters", "8xh10"}, 2, "h10"},
        BadInput{"UnknownLayoutKey",
                 {"train", "--model", "gpt2-tiny", "--gbs", "4", "--seq", "8", "--layout", "tpp=2"},
                 2,
                 "did you mean 'tp'?"},
        BadInput{"BadLayout",
                 {"train", "--model", "gpt2-tiny", "--gbs", "4", "--seq", "8", "--layout", "tp"},
                 2,
                 "tp"},
        BadInput{"TraceOfClosedForm",
                 {"estimate", "--tier", "closed-form", "--trace", "@t.json"},
                 2,
                 "--trace needs"},
        BadInput{"OneOfSeveralBatchesIsNone",
                 {"search", "--model", "gpt2-124m", "--gbs", "4,many", "--seq", "8"},
                 2,
                 "--gbs many: expected a number of sequences"},
        BadInput{"EnergyWithoutPower",
                 {"search", "--model", "gpt2-124m", "--gbs", "4", "--seq", "8", "--cluster",
                  "local", "--profile", "generic", "--objective", "energy"},
                 2,
                 "--objective energy: the power of"},
        BadInput{"IndifferenceIsNoShare",
                 {"search", "--model", "gpt2-124m", "--gbs", "4", "--seq", "8", "--indifference",
                  "lots"},
                 2,
                 "expected a share such as 1% or 0.01"},
        BadInput{"SaveNowhere",
                 {"train", "--config", "@run.json", "--save-every", "2"},
                 2,
                 "needs --checkpoint"},
        BadInput{"BadMode", {"calibrate", "--out", "@p.json", "--modes", "2"}, 2, "--modes"}),
    [](const auto& param) { return param.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Files, BadInputTest,
    testing::Values(
        BadInput{"MissingConfig", {"train", "--config", "@nothing.json"}, 3, "nothing.json"},
        BadInput{"FolderAsConfig", {"train", "--config", "@letters"}, 3, "letters"},
        BadInput{"TruncatedConfig", {"train", "--config", "@truncated.json"}, 3, "truncated.json"},
        BadInput{"EmptyConfig", {"train", "--config", "@empty.json"}, 3, "empty.json"},
        BadInput{"ListConfig", {"train", "--config", "@list.json"}, 3, "list.json: $"},
        BadInput{"DeepConfig", {"train", "--config", "@deep.json"}, 3, "deep.json"},
        BadInput{"BinaryConfig", {"train", "--config", "@binary.json"}, 3, "binary.json"},
        BadInput{"HugeConfig", {"train", "--config", "@huge.json"}, 3, "huge.json"},
        BadInput{"MistypedConfig", {"train", "--config", "@mistyped.json"}, 3, "$.global_batch"},
        BadInput{"OutOfRangeConfig", {"train", "--config", "@range.json"}, 3, "$.global_batch"},
        BadInput{"UnknownKey", {"train", "--config", "@unknown.json"}, 3, "globl_batch"},
        BadInput{"MissingModelFile", {"models", "@nothing.json"}, 3, "nothing.json"},
        BadInput{"MissingCluster", {"clusters", "@nothing.json"}, 3, "nothing.json"},
        BadInput{"MissingProfile",
                 {"clusters", "local", "--profile", "@nothing.json"},
                 3,
                 "nothing.json"},
        BadInput{"RunAsProfile", {"clusters", "local", "--profile", "@run.json"}, 3, "run.json"},
        BadInput{"MissingData",
                 {"train", "--config", "@run.json", "--data", "@nothing"},
                 3,
                 "nothing.idx"},
        BadInput{"TruncatedData",
                 {"train", "--config", "@run.json", "--data", "@cut"},
                 3,
                 "cut.bin: 100 bytes; expected"},
        BadInput{"WrongMagic", {"data", "info", "@magic"}, 3, "MMIDIDX"},
        BadInput{"ShortData",
                 {"train", "--config", "@run.json", "--data", "@short"},
                 3,
                 "4 tokens; expected at least 9"},
        BadInput{"RunAsModel",
                 {"profile", "--model", "@run.json", "--gbs", "1", "--seq", "8"},
                 3,
                 "run.json"},
        BadInput{
            "MissingInput", {"data", "build", "--input", "@nothing", "--out", "@o"}, 3, "nothing"},
        BadInput{"FolderAsInput",
                 {"data", "build", "--input", "@letters", "--out", "@o"},
                 3,
                 "is a folder"},
        BadInput{"BadJsonl",
                 {"data", "build", "--input", "@bad.jsonl", "--out", "@o"},
                 3,
                 "bad.jsonl:2: $.text"},
        BadInput{"NoiseAsText",
                 {"data", "build", "--input", "@noise.bin", "--out", "@o"},
                 3,
                 "noise.bin: invalid UTF-8 (0x80) at byte 2 of the file; expected text in UTF-8"},
        BadInput{"NulInText",
                 {"data", "build", "--input", "@nul.txt", "--out", "@o"},
                 3,
                 "nul.txt: a NUL byte at byte 1"},
        BadInput{"TruncatedText",
                 {"data", "build", "--input", "@torn.txt", "--out", "@o"},
                 3,
                 "torn.txt: a truncated UTF-8 character at byte 3"},
        BadInput{"Latin1Jsonl",
                 {"data", "build", "--input", "@latin1.jsonl", "--out", "@o"},
                 3,
                 "latin1.jsonl:2: invalid UTF-8 (0x22 within a character) at byte 27"},
        BadInput{"TextAsJsonl",
                 {"data", "build", "--input", "@text.txt", "--format", "jsonl", "--out", "@o"},
                 3,
                 "text.txt:1: not valid JSON at column 1; expected JSON lines"},
        BadInput{"JsonArray",
                 {"data", "build", "--input", "@array.json", "--out", "@o"},
                 3,
                 "array.json:1: a JSON array; expected JSON lines: one JSON object per line"},
        BadInput{"PrettyJson",
                 {"data", "build", "--input", "@pretty.json", "--out", "@o"},
                 3,
                 "pretty.json:1: the object does not end on this line; expected JSON lines"},
        BadInput{"NoRuns", {"validate", "--runs", "@runs.json"}, 3, "$.runs"},
        BadInput{
            "MissingStudy", {"report", "--study", "@nothing.db", "--out", "@o"}, 3, "nothing.db"}),
    [](const auto& param) { return param.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Others, BadInputTest,
    testing::Values(
        BadInput{"IllegalLayout",
                 {"train", "--model", "gpt2-tiny", "--gbs", "4", "--seq", "8", "--layout", "tp=3"},
                 4,
                 "heads-divisible-by-tp"},
        BadInput{"ExpertRanksOfADenseModel",
                 {"train", "--model", "gpt2-tiny", "--gbs", "4", "--seq", "8", "--layout", "ep=2"},
                 4,
                 "expert-ranks-require-experts"},
        BadInput{"TooManyRanks",
                 {"estimate", "--model", "gpt2-tiny", "--gbs", "64", "--seq", "8", "--cluster",
                  "8xh100", "--layout", "tp=4,dp=4"},
                 4,
                 "16 ranks"},
        BadInput{"OutOfMemory",
                 {"train", "--config", "@run.json", "--memory-per-rank", "1KiB"},
                 4,
                 "memory"},
        BadInput{
            "NoGpu",
            {"train", "--model", "gpt2-tiny", "--gbs", "8", "--seq", "8", "--cluster", "8xh100"},
            6,
            "CUDA"},
        BadInput{"FlagTwice",
                 {"models", "--log-file", "@a.log", "--log-file", "@b.log"},
                 2,
                 "--log-file is given more than once"},
        BadInput{"UnwritableLog", {"models", "--log-file", "@text.txt/log"}, 6, "--log-file"},
        BadInput{"UnwritableDataset",
                 {"data", "build", "--input", "@text.txt", "--out", "@text.txt/o"},
                 7,
                 "text.txt/o.bin"},
        BadInput{"CheckpointOverFile",
                 {"train", "--config", "@run.json", "--checkpoint", "@text.txt"},
                 7,
                 "not a folder"},
        BadInput{"CheckpointOverLetters",
                 {"train", "--config", "@run.json", "--checkpoint", "@letters"},
                 7,
                 "letter.txt"},
        BadInput{"ProfileInAFile",
                 {"calibrate", "--quick", "--out", "@text.txt/p.json"},
                 7,
                 "text.txt/p.json"},
        BadInput{
            "ProfileOverAFolder", {"calibrate", "--quick", "--out", "@letters"}, 7, "a folder"},
        BadInput{"MissingCheckpoint",
                 {"train", "--config", "@run.json", "--load", "@nothing"},
                 3,
                 "nothing: no such folder; expected one that 'trimtab train' wrote"},
        BadInput{"CorruptStudyOfASearch",
                 {"search", "--model", "gpt2-tiny", "--gbs", "8", "--seq", "8", "--cluster",
                  "8xh100", "--prove", "0", "--study", "@noise.db", "--resume"},
                 7,
                 "noise.db"},
        BadInput{"UnwritableStudy",
                 {"search", "--model", "gpt2-tiny", "--gbs", "8", "--seq", "8", "--cluster",
                  "8xh100", "--prove", "0", "--study", "@text.txt/s.db"},
                 7,
                 "s.db"},
        BadInput{"StudyIsNoStudy",
                 {"search", "--model", "gpt2-tiny", "--gbs", "8", "--seq", "8", "--cluster",
                  "8xh100", "--prove", "0", "--study", "@noise.db"},
                 7,
                 "noise.db: not a study; name another file"},
        BadInput{"NothingFits",
                 {"search", "--model", "gpt2-tiny", "--gbs", "8", "--seq", "8", "--cluster",
                  "8xh100", "--prove", "0", "--study", "@n.db", "--memory-per-rank", "1KiB"},
                 4,
                 "memory"},
        BadInput{"UnknownPrecision",
                 {"search", "--model", "gpt2-tiny", "--gbs", "8", "--seq", "8", "--precision",
                  "fp32,bf61", "--profile", "generic", "--prove", "0", "--study", "@p.db"},
                 2,
                 "did you mean 'bf16'"},
        BadInput{"EmptyPrecision",
                 {"search", "--model", "gpt2-tiny", "--gbs", "8", "--seq", "8", "--precision",
                  "fp32,", "--profile", "generic", "--prove", "0", "--study", "@p.db"},
                 2,
                 "--precision"},
        BadInput{"PrecisionWithoutARate",
                 {"search", "--model", "gpt2-tiny", "--gbs", "8", "--seq", "8", "--cluster",
                  "8xa100", "--precision", "fp8", "--prove", "0", "--study", "@p.db"},
                 2,
                 "a100-80gb"},
        BadInput{"UnknownOptimizerState",
                 {"search", "--model", "gpt2-tiny", "--gbs", "8", "--seq", "8", "--optimizer-state",
                  "tiny", "--profile", "generic", "--prove", "0", "--study", "@p.db"},
                 2,
                 "remainder/bf16/fp32"},
        BadInput{"OptimizerStateThatThePrecisionHasNot",
                 {"estimate", "--model", "gpt2-tiny", "--gbs", "8", "--seq", "8",
                  "--optimizer-state", "remainder/bf16/fp32"},
                 4,
                 "remainder-requires-bf16-weights"},
        BadInput{
            "PrecisionOfARun",
            {"estimate", "--model", "gpt2-tiny", "--gbs", "8", "--seq", "8", "--precision", "bf61"},
            2,
            "did you mean 'bf16'"},
        BadInput{"NoGpusToProveOn",
                 {"search", "--model", "gpt2-tiny", "--gbs", "8", "--seq", "8", "--cluster",
                  "8xh100", "--study", "@g.db"},
                 6,
                 "8xh100"},
        BadInput{"OutputThatIsTheInput",
                 {"export", "--format", "megatron", "--config", "@run.json", "--out", "@run.json"},
                 2,
                 "would replace the input"},
        BadInput{"PageThatIsTheInput",
                 {"validate", "--runs", "@runs.json", "--html", "@runs.json"},
                 2,
                 "would replace the input"},
        BadInput{"CorruptStudy", {"report", "--study", "@noise.db", "--out", "@o"}, 7, "noise.db"}),
    [](const auto& param) { return param.param.name; });

TEST_F(BadInputTest, AFullStdoutIsAStorageError) {
  const int saved = ::dup(STDOUT_FILENO);
  const int full = ::open("/dev/full", O_WRONLY);
  ::dup2(full, STDOUT_FILENO);
  testing::internal::CaptureStderr();
  const char* argv[] = {"trimtab", "models"};
  const int code = RunCommand(2, argv);
  const std::string err = testing::internal::GetCapturedStderr();
  ::dup2(saved, STDOUT_FILENO);
  ::close(saved);
  ::close(full);
  EXPECT_EQ(code, 7);
  EXPECT_NE(err.find("cannot write to stdout"), std::string::npos) << err;
}

TEST_F(BadInputTest, AFullDiskLosesNothing) {
  const std::string checkpoint = folder_ + "/checkpoint";
  ASSERT_EQ(RunCli({"train", "--config", folder_ + "/run.json", "--checkpoint", checkpoint, "-q"})
                .exit_code,
            0);
  const std::string before = ReadBytes(checkpoint + "/checkpoint.json");
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit limit = {6000, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  const CliResult train = RunCli({"train", "--config", folder_ + "/run.json", "--checkpoint",
                                  checkpoint, "--steps", "2", "-q"});
  const CliResult build =
      RunCli({"data", "build", "--input", folder_ + "/data.txt", "--out", folder_ + "/data", "-q"});
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_EQ(train.exit_code, 7) << train.err;
  EXPECT_EQ(build.exit_code, 7) << build.err;
  EXPECT_EQ(ReadBytes(checkpoint + "/checkpoint.json"), before);
  EXPECT_EQ(RunCli({"data", "info", folder_ + "/data"}).exit_code, 0);
  EXPECT_EQ(
      RunCli({"train", "--config", folder_ + "/run.json", "--load", checkpoint, "-q"}).exit_code,
      0);
}

}  // namespace
}  // namespace trimtab
