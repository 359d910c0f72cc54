// Everything a user can get wrong: the exit code, and one clear line on stderr.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "engine/checkpoint/checkpoint.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/tools/bad_input.h"
#include "tests/tools/run_cli.h"
#include "tools/cli/command.h"

namespace trimtab {
namespace {

TEST_P(BadInputTest, EndsWithItsCodeAndOneLine) { ExpectRefused(); }

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
        BadInput{"SaveNowhere",
                 {"train", "--config", "@run.json", "--save-every", "2"},
                 2,
                 "needs --checkpoint"},
        BadInput{"BadMode", {"calibrate", "--out", "@p.json", "--modes", "2"}, 2, "--modes"},
        BadInput{"Help", {"help"}, 2, "see 'trimtab --help'"},
        BadInput{
            "NoSteps", {"train", "--steps", "0"}, 2, "--steps: '0' is not a whole number from 1"},
        BadInput{"NoLearningRate", {"train", "--lr", "0"}, 2, "--lr: '0' is not a number above 0"},
        BadInput{"MarkdownAndJson",
                 {"models", "--markdown", "--json"},
                 2,
                 "--markdown contradicts --json"},
        BadInput{"SwitchWithValue", {"models", "--json=foo"}, 2, "--json takes no value"},
        BadInput{"RequiredFlagOfData", {"data", "build"}, 2, "see 'trimtab data build --help'"},
        BadInput{"FewerStepsThanTheLeast",
                 {"profile", "--config", "@run.json", "--steps", "5", "--max-steps", "3"},
                 2,
                 "--max-steps 3: expected at least the 5 of --steps"},
        BadInput{"FewerSecondsThanTheLeast",
                 {"profile", "--config", "@run.json", "--min-seconds", "5", "--max-seconds", "3"},
                 2,
                 "--max-seconds 3: expected at least the 5 of --min-seconds"},
        BadInput{"ThresholdWithoutScan",
                 {"profile", "--config", "@run.json", "--fp8-threshold", "0.1"},
                 2,
                 "--fp8-threshold needs --fp8-scan"},
        BadInput{"KeyOfPlainText",
                 {"data", "build", "--input", "@text.txt", "--json-key", "text", "--out", "@o"},
                 2,
                 "--json-key is for JSONL"},
        BadInput{"PrecisionTwice",
                 {"train", "--model", "gpt2-tiny", "--gbs", "4", "--seq", "8", "--precision",
                  "bf16", "--layout", "mbs=2,precision=fp8"},
                 2,
                 "--layout precision=fp8: --precision says it, too"},
        BadInput{
            "UnknownOptimizer",
            {"train", "--model", "gpt2-tiny", "--gbs", "4", "--seq", "8", "--optimizer", "adam"},
            2,
            "unknown optimizer 'adam'; did you mean 'adamw'?"},
        BadInput{"OptimizerStateTwice",
                 {"train", "--model", "gpt2-tiny", "--gbs", "4", "--seq", "8", "--optimizer-state",
                  "full", "--layout", "grads=bf16"},
                 2,
                 "--layout grads=bf16"},
        BadInput{"MoreThreadsThanCores",
                 {"calibrate", "--out", "@p.json", "--modes", "999x999"},
                 2,
                 "--modes 999x999: 998001 threads; expected at most"}),
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
            "MissingStudy", {"report", "--study", "@nothing.db", "--out", "@o"}, 3, "nothing.db"},
        BadInput{"NoFolderOfWeights",
                 {"train", "--load-hf", "@nothing", "--gbs", "4", "--seq", "8"},
                 3,
                 "nothing: no such folder"},
        BadInput{"HeaderThatIsEmpty",
                 {"train", "--config", "@run.json", "--load", "@hollow"},
                 7,
                 "it has no \"xxh64\""},
        BadInput{"QuantizedWeights",
                 {"train", "--config", "@run.json", "--load", "@quantized"},
                 3,
                 "quantized: holds quantized weights"},
        BadInput{"NoSentencePieceModel",
                 {"data", "build", "--input", "@text.txt", "--tokenizer", "@tokenizer.model",
                  "--out", "@o"},
                 3,
                 "tokenizer.model: not a SentencePiece model"},
        BadInput{"ModelThatContradictsItself",
                 {"estimate", "--model", "@uneven.json", "--cluster", "8xh100", "--gbs", "8",
                  "--seq", "8", "--layout", "tp=1"},
                 3,
                 "uneven.json: $: heads-divisible-by-kv-heads: num_heads 40 is not divisible by "
                 "num_kv_heads 7"}),
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
        BadInput{"UnwritableLog", {"models", "--log-file", "@text.txt/log"}, 7, "--log-file"},
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
        BadInput{"OutputThatIsTheInput",
                 {"export", "--format", "megatron", "--config", "@run.json", "--out", "@run.json"},
                 2,
                 "would replace the input"},
        BadInput{"PageThatIsTheInput",
                 {"validate", "--runs", "@runs.json", "--html", "@runs.json"},
                 2,
                 "would replace the input"},
        BadInput{"CorruptStudy", {"report", "--study", "@noise.db", "--out", "@o"}, 7, "noise.db"},
        BadInput{"FolderAsLog",
                 {"models", "--log-file", "@letters"},
                 7,
                 "letters: is a folder; expected a file"},
        BadInput{"CheckpointInAFile",
                 {"train", "--config", "@run.json", "--checkpoint", "@text.txt/c"},
                 7,
                 "text.txt/c: cannot create it"}),
    [](const auto& param) { return param.param.name; });

// As the last word: the library takes any that follows for the value.
TEST_F(BadInputTest, AFlagWithoutAValueIsRefused) {
  const CliResult result = RunCli({"train", "--model"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err, "trimtab: --model has no value; expected one\n");
}

/// What `run` returns while the stream takes nothing.
int WhileFull(int stream, const std::function<int()>& run) {
  const int saved = ::dup(stream);
  const int full = ::open("/dev/full", O_WRONLY);
  ::dup2(full, stream);
  const int code = run();
  ::dup2(saved, stream);
  ::close(saved);
  ::close(full);
  return code;
}

TEST_F(BadInputTest, AFullStdoutIsAStorageError) {
  const char* argv[] = {"trimtab", "models"};
  testing::internal::CaptureStderr();
  EXPECT_EQ(WhileFull(STDOUT_FILENO, [&] { return RunCommand(2, argv); }), 7);
  const std::string err = testing::internal::GetCapturedStderr();
  EXPECT_NE(err.find("cannot write to stdout"), std::string::npos) << err;
}

TEST_F(BadInputTest, AnErrorThatNobodyReadsHasItsExitCode) {
  const char* argv[] = {"trimtab", "data", "info", "nofile"};
  EXPECT_EQ(WhileFull(STDERR_FILENO, [&] { return RunCommand(4, argv); }), 3);
}

TEST_F(BadInputTest, WhatWasTrainedIsSavedWhereNobodyReads) {
  const std::string config = folder_ + "/run.json";
  const std::string checkpoint = folder_ + "/unread";
  const char* argv[] = {"trimtab", "train",        "--config",        config.c_str(),
                        "--json",  "--checkpoint", checkpoint.c_str()};
  testing::internal::CaptureStderr();
  EXPECT_EQ(WhileFull(STDOUT_FILENO, [&] { return RunCommand(7, argv); }), 7);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(StepOfCheckpoint(checkpoint), 1);
}

TEST_F(BadInputTest, ACheckpointOfAnotherRunIsNotReplaced) {
  const std::string checkpoint = folder_ + "/taken";
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"train", "--config", folder_ + "/run.json", "--checkpoint", checkpoint, "-q"});
    return RunCli(more);
  };
  ASSERT_EQ(train({}).exit_code, 0);
  const CliResult again = train({});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_NE(again.err.find("taken: holds a checkpoint at step 4; continue it with --resume or "
                           "--load, or name another folder"),
            std::string::npos)
      << again.err;
  EXPECT_EQ(train({"--resume"}).exit_code, 0);
  EXPECT_EQ(train({"--load", checkpoint, "--steps", "5", "--schedule-steps", "4"}).exit_code, 0);
}

// It was found out at the end of the training.
TEST_F(BadInputTest, AFolderThatCannotBeMadeIsRefusedBeforeTheFirstStep) {
  const CliResult result = RunCli(
      {"train", "--config", folder_ + "/run.json", "--json", "--checkpoint", "/proc/none/c"});
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("/proc/none/c: cannot create it"), std::string::npos) << result.err;
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
  const CliResult train =
      RunCli({"train", "--config", folder_ + "/run.json", "--load", checkpoint, "--checkpoint",
              checkpoint, "--steps", "5", "--schedule-steps", "4", "-q"});
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
