#include "engine/config/json/strict_json.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/device_kind.h"
#include "engine/base/error.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

TEST(StrictObject, ReadsEveryTypeAndKeepsDefaults) {
  const auto json = nlohmann::json::parse(
      R"({"i": -3, "u": 18446744073709551615, "n": 2, "b": true, "t": "x", "c": "two"})");
  StrictObject object(json, "f: $");
  int64_t integer = 0;
  int64_t missing = 42;
  uint64_t natural = 0;
  double number = 0;
  bool boolean = false;
  std::string text;
  std::string choice;
  const std::vector<std::string> valid = {"one", "two"};
  object.Integer("i", integer, -5, 5);
  object.Integer("missing", missing, 0, 1);
  object.Unsigned("u", natural);
  object.Number("n", number, 0, 3);  // an integer is a number
  object.Boolean("b", boolean);
  object.Text("t", text);
  object.Choice("c", choice, valid);
  object.Finish();
  EXPECT_EQ(integer, -3);
  EXPECT_EQ(missing, 42);
  EXPECT_EQ(natural, UINT64_MAX);
  EXPECT_EQ(number, 2.0);
  EXPECT_TRUE(boolean);
  EXPECT_EQ(text, "x");
  EXPECT_EQ(choice, "two");
}

TEST(StrictObject, ReadsNamesOfATable) {
  const nlohmann::json json = {{"device", "cuda"}, {"other", "meta"}};
  StrictObject object(json, "f: $");
  DeviceKind device = DeviceKind::kCpu;
  object.Choice("device", device, kDeviceNames);
  EXPECT_EQ(device, DeviceKind::kCuda);
  object.Choice("missing", device, kDeviceNames);
  EXPECT_EQ(device, DeviceKind::kCuda);
  EXPECT_EQ(ErrorText<InputError>([&] { object.Choice("other", device, kDeviceNames); }),
            "f: $.other: expected one of cpu, cuda, got \"meta\"");
  EXPECT_EQ(Name(DeviceKind::kMeta), "meta") << "which no file may ask for";
}

TEST(StrictObject, IntegersAreIntegersWithinRange) {
  const char* const wrong[] = {"1.0",
                               "1e2",
                               "\"1\"",
                               "true",
                               "null",
                               "[]",
                               "{}",
                               "0",
                               "101",
                               "9223372036854775808",
                               "-9223372036854775809",
                               "1e400000"};
  for (const char* value : wrong) {
    const std::string text = fmt::format("{{\"k\": {}}}", value);
    const std::string message = ErrorText<InputError>([&text] {
      const auto json = ParseJsonText(text, "f");
      int64_t integer = 0;
      StrictObject(json, "f: $").Integer("k", integer, 1, 100);
    });
    EXPECT_TRUE(message.starts_with("f: ")) << value << ": " << message;
  }
}

TEST(StrictObject, ReadsArraysValueByValue) {
  const nlohmann::json json = {{"a", {3, 4}}, {"none", nlohmann::json::array()}, {"n", 1}};
  StrictObject object(json, "f: $");
  std::string read;
  const ArrayReader note = [&](const nlohmann::json& value, const std::string& where) {
    read += fmt::format("{}={} ", where, value.get<int>());
  };
  object.Array("a", Need::kRequired, 2, note);
  object.Array("none", Need::kRequired, 0, note);
  object.Array("missing", Need::kOptional, 1, note);
  EXPECT_EQ(read, "f: $.a[0]=3 f: $.a[1]=4 ");
  const auto refusal = [&](const std::string& key, size_t least) {
    return ErrorText<InputError>([&] { object.Array(key, Need::kRequired, least, note); });
  };
  EXPECT_EQ(refusal("n", 0), "f: $.n: expected an array, got 1");
  EXPECT_EQ(refusal("none", 1),
            "f: $.none: expected an array that is not empty, got an array of 0");
  EXPECT_EQ(refusal("a", 3), "f: $.a: expected an array of at least 3, got an array of 2");
  EXPECT_TRUE(refusal("missing", 0).starts_with("f: $.missing: required, but missing"));
  object.Finish();  // all keys are known now
}

TEST(StrictObject, ALineHasNoControlCharacters) {
  const nlohmann::json json = {
      {"name", "Qwen 3 – größer"}, {"lines", "a\nb"}, {"nul", std::string("a\0b", 3)}};
  StrictObject object(json, "f: $");
  std::string name;
  object.Line("name", name);
  EXPECT_EQ(name, "Qwen 3 – größer");
  EXPECT_EQ(ErrorText<InputError>([&] { object.Line("lines", name); }),
            "f: $.lines: expected one line without control characters, got \"a\\nb\"");
  EXPECT_EQ(ErrorText<InputError>([&] { object.Line("nul", name); }),
            "f: $.nul: expected one line without control characters, got \"a\\u0000b\"");
  EXPECT_EQ(name, "Qwen 3 – größer");
}

TEST(StrictObject, NamesTheEndOfTheTypeOnlyToWhoIsBeyondIt) {
  const auto message = [](const std::string& value, int64_t min) {
    const auto json = nlohmann::json::parse("{\"k\": " + value + "}");
    return ErrorText<InputError>([&] {
      int64_t integer = 0;
      StrictObject(json, "$").Integer("k", integer, min, std::numeric_limits<int64_t>::max());
    });
  };
  EXPECT_EQ(message("0", 1), "$.k: expected an integer of at least 1, got 0");
  EXPECT_EQ(message("18446744073709551616", 1),
            "$.k: expected an integer from 1 to 9223372036854775807, got 1.8446744073709552e+19");
  EXPECT_EQ(message("\"x\"", std::numeric_limits<int64_t>::min()),
            "$.k: expected an integer from -9223372036854775808 to 9223372036854775807, got "
            "\"x\"");
}

TEST(StrictObject, MessagesShowValuesOnOneShortLine) {
  const auto json = nlohmann::json::parse(R"({"a": "line\nbreak", "b": {"c": 1}, "d": [1, 2]})");
  EXPECT_EQ(DescribeJson(json["a"]), R"("line\nbreak")");
  EXPECT_EQ(DescribeJson(json["b"]), "an object");
  EXPECT_EQ(DescribeJson(json["d"]), "an array of 2");
  EXPECT_LT(DescribeJson(std::string(100000, 'x')).size(), 100u);
}

TEST(StrictObject, UnknownKeysThatNobodyMeantListTheValidOnes) {
  const auto json = nlohmann::json::parse(R"({"zzz": 1})");
  StrictObject object(json, "f: $");
  bool ignored = false;
  object.Find("tp");  // asked for twice, listed once
  object.Boolean("tp", ignored);
  object.Boolean("dp", ignored);
  EXPECT_EQ(ErrorText<InputError>([&object] { object.Finish(); }),
            "f: $.zzz: unknown key; valid: tp, dp");
}

TEST(ParseJsonText, SaysWhereTheTextIsWrong) {
  const std::string message =
      ErrorText<InputError>([] { ParseJsonText("{\n  \"a\": 1,\n  \"b\": tru\n}", "run.json"); });
  EXPECT_TRUE(message.starts_with("run.json:3:")) << message;
  EXPECT_NE(message.find("not JSON"), std::string::npos) << message;
}

TEST(ParseJsonText, DepthIsLimitedButBracketsInStringsAreNot) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_NO_THROW(ParseJsonText(nested(kMaxJsonDepth), "f"));
  EXPECT_EQ(ErrorText<InputError>([&] { ParseJsonText(nested(kMaxJsonDepth + 1), "f"); }),
            "f:1:65: nested deeper than 64 levels");
  EXPECT_NO_THROW(ParseJsonText('"' + std::string(1000, '[') + "\\\"[\"", "f"));
}

TEST(ParseJsonText, SameKeyInDifferentObjectsIsFine) {
  EXPECT_NO_THROW(ParseJsonText(R"({"a": {"a": 1}, "b": [{"a": 2}, {"a": 3}]})", "f"));
}

// Whatever a file is cut down to, it is refused in words and never crashes.
TEST(ParseJsonText, EveryPrefixOfAFileIsRefused) {
  const std::string whole = R"({"a": [1, 2.5e3, "\u00e9\n"], "b": {"c": null, "d": true}})";
  EXPECT_NO_THROW(ParseJsonText(whole, "f"));
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(ParseJsonText(whole.substr(0, length), "f"), InputError) << length;
  }
}

TEST(ReadJsonFile, RefusesWhatCannotBeRead) {
  EXPECT_EQ(ErrorText<InputError>([] { ReadJsonFile("no/such/file.json"); }),
            "no/such/file.json: cannot be read: No such file or directory");
  EXPECT_EQ(ErrorText<InputError>([] { ReadJsonFile("/"); }), "/: cannot be read: Is a directory");
}

TEST(ReadJsonFile, ReadsPipesButWaitsForNobodyToOpenThem) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_NE(ErrorText<InputError>([&path] { ReadJsonFile(path); }).find("not JSON"),
            std::string::npos);
  const int both = ::open(path.c_str(), O_RDWR);
  ASSERT_EQ(::write(both, "[1]", 3), 3);
  std::thread writer([both] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ::close(both);
  });
  EXPECT_EQ(ReadJsonFile(path), nlohmann::json({1}));
  writer.join();
  std::remove(path.c_str());
}

TEST(ReadJsonFile, RefusesAHugeFileWithoutReadingAllOfIt) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/huge.json";
  FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  // A hole: a terabyte that takes no space.
  ASSERT_EQ(fseeko(file, off_t{1} << 40, SEEK_SET), 0);
  std::fputc('1', file);
  std::fclose(file);
  EXPECT_EQ(ErrorText<InputError>([&path] { ReadJsonFile(path); }),
            path + ": larger than 64.0 MiB, too large for JSON");
  std::remove(path.c_str());
}

}  // namespace
}  // namespace trimtab
