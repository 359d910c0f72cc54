// JSON and JSON schemas as grammars.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "tests/engine/grammar/grammar_walk.h"
#include "tests/engine/grammar/schema_checker.h"

namespace trimtab {
namespace {

using Json = nlohmann::ordered_json;
using Kind = GrammarSource::Kind;

std::shared_ptr<const TokenGrammar> SchemaGrammar(const std::string& schema) {
  return TokenGrammar::Compile(
      {Kind::kJsonSchema, schema},
      ByteVocabulary({"{\"", "\": ", "\", \"", "true", " [", "}}", "12", "\\u00", "-", "é"}));
}

Json RandomValue(int depth, std::mt19937& random) {
  const auto text = [&random] {
    static const std::vector<std::string> kParts = {
        "a", "\"", "\\", "\n", "\x01", "é", "\xF0\x9F\x98\x80", "/", " ", "{", "\x7f"};
    std::string made;
    for (size_t length = random() % 5; length > 0; --length)
      made += kParts[random() % kParts.size()];
    return made;
  };
  switch (random() % (depth == 0 ? 5 : 7)) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return static_cast<int64_t>(random()) - (int64_t{1} << 31);
    case 3:
      return std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200) - 100);
    case 4:
      return text();
    case 5: {
      Json list = Json::array();
      for (size_t length = random() % 4; length > 0; --length)
        list.push_back(RandomValue(depth - 1, random));
      return list;
    }
    default: {
      Json object = Json::object();
      for (size_t length = random() % 4; length > 0; --length)
        object[text()] = RandomValue(depth - 1, random);
      return object;
    }
  }
}

TEST(JsonTest, TakesWhatAnotherLibraryWrites) {
  std::mt19937 random(1);
  const auto objects = TokenGrammar::Compile({Kind::kJsonObject}, ByteVocabulary());
  const auto values = TokenGrammar::Compile({Kind::kJsonSchema, "{}"}, ByteVocabulary());
  for (int i = 0; i < 400; ++i) {
    const Json value = RandomValue(3, random);
    for (const std::string& text : {value.dump(), value.dump(2), value.dump(4, ' ', true)}) {
      EXPECT_TRUE(Takes(values, text)) << text;
      EXPECT_EQ(Takes(objects, text), value.is_object()) << text;
    }
  }
}

TEST(JsonTest, WritesWhatAnotherLibraryReads) {
  std::mt19937 random(2);
  const auto grammar = SchemaGrammar("{}");
  int ended = 0;
  for (int i = 0; i < 500; ++i) {
    const auto text = RandomText(grammar, 60, random);
    if (!text) continue;
    ++ended;
    EXPECT_TRUE(Json::accept(*text)) << *text;
  }
  EXPECT_GT(ended, 100);
}

TEST(JsonTest, RefusesWhatIsNoJson) {
  const auto values = TokenGrammar::Compile({Kind::kJsonSchema, "true"}, ByteVocabulary());
  for (const char* text : {"", "{", "[1,]", "01", "1.", "-", "+1", "\"\n\"", "\"\\x\"",
                           "\"\\ud800\"", "\"\\ud800\\u0041\"", "\"\\udc00\"", "nul", "{\"a\" 1}",
                           "{a:1}", "1 ", "\"\xFF\"", "[1   ,2]"}) {
    EXPECT_FALSE(Takes(values, text)) << text;
  }
  EXPECT_TRUE(Takes(values, "\"\\ud83d\\ude00\""));
}

struct SchemaCase {
  const char* schema;
  std::vector<const char*> fits;
  std::vector<const char*> others;
};

TEST(JsonSchemaTest, DescribesValues) {
  const SchemaCase kCases[] = {
      {R"({"type":"object","properties":{"a":{"type":"integer"},)"
       R"("b":{"type":"string"},"c":{}},"required":["b"]})",
       {R"({"b":""})", R"({"a": 1, "b": "x"})", R"({"a":-3,"b":"","c":[{}]})",
        "{\n  \"b\": \"\",\n  \"c\": 0\n}"},
       {"{}", R"({"a":1})", R"({"b":"","a":1})", R"({"b":"","d":1})", R"({"a":1.5,"b":""})",
        R"({,"b":""})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"}},)"
       R"("additionalProperties":{"type":"boolean"}})",
       {"{}", R"({"a":1})", R"({"a":1,"ab":true})", R"({"b":true,"":false})", R"({"\"":true})"},
       {R"({"a":true})", R"({"b":1})", R"({"\u0061":true})", R"({"b":true,"a":1})"}},
      {R"({"type":"object"})", {"{}", R"({"x":{"y":[]}})"}, {"[]", "1"}},
      {R"({"type":"object","additionalProperties":{"type":"null"},)"
       R"("minProperties":1,"maxProperties":2})",
       {R"({"a":null})", R"({"a":null,"b":null})"},
       {"{}", R"({"a":null,"b":null,"c":null})"}},
      {R"({"type":"object",)"
       R"("patternProperties":{"^x-":{"type":"null"}}})",
       {"{}", R"({"x-1":null})"},
       {R"({"y":null})"}},
      {R"({"required":["q"],"properties":{"p":{"type":"null"}}})",
       {R"({"q":[1]})", R"({"p":null,"q":1})"},
       {"{}", R"({"p":null})"}},
      {R"({"type":"array","items":{"type":"null"},"minItems":1,)"
       R"("maxItems":3})",
       {"[null]", "[null, null,null]"},
       {"[]", "[null,null,null,null]", "[1]"}},
      {R"({"type":"array","prefixItems":[{"type":"null"},)"
       R"({"type":"boolean"}],"items":{"type":"integer"},"minItems":1})",
       {"[null]", "[null,true]", "[null,true,1,2]"},
       {"[]", "[true]", "[null,1]", "[null,true,null]"}},
      {R"({"type":"array","items":[{"type":"null"}],)"
       R"("additionalItems":false})",
       {"[]", "[null]"},
       {"[null,null]"}},
      {R"({"type":"array","items":{"type":"null"},"maxItems":0})", {"[]"}, {"[null]"}},
      {R"({"type":["string","null"],"maxLength":2,"minLength":1})",
       {"null", "\"é\"", "\"\\n\\u00e9\""},
       {"\"\"", "\"abc\"", "1"}},
      {R"({"type":"string","pattern":"b+$"})",
       {"\"b\"", "\"abb\"", "\"\\\"b\""},
       {"\"\"", "\"ba\""}},
      {R"({"type":"string","pattern":"^[a-z\"\\\\]*$","minLength":2,)"
       R"("maxLength":3})",
       {"\"ab\"", "\"a\\\"b\"", "\"\\\\\\\\\""},
       {"\"a\"", "\"abcd\"", "\"a\"b\""}},
      {R"({"enum":["a",1,null,{"k":[true]},"a\"b"]})",
       {"\"a\"", "1", "null", R"({"k": [true]})", "\"a\\\"b\""},
       {"\"b\"", "2", "{}"}},
      {R"({"const":"x"})", {"\"x\""}, {"\"y\""}},
      {R"({"type":"string","enum":["a",1]})", {"\"a\""}, {"1"}},
      {R"({"anyOf":[{"type":"null"},{"type":"integer","minimum":5}]})",
       {"null", "5", "17"},
       {"4", "true"}},
      {R"({"type":"object","properties":{"k":{"type":"null"},"a":{},)"
       R"("b":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
       {R"({"a":1})", R"({"k":null,"b":2})"},
       {"{}", R"({"k":null})"}},
      {R"({"allOf":[{"type":"object",)"
       R"("properties":{"a":{"type":"integer"}},"required":["a"]},)"
       R"({"properties":{"b":{"type":"null"},"a":{"minimum":3}}}]})",
       {R"({"a":3})", R"({"a":3,"b":null})"},
       {R"({"a":2})", R"({"b":null})"}},
      {R"({"$defs":{"node":{"type":"object",)"
       R"("properties":{"v":{"type":"integer"},)"
       R"("next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},)"
       R"("required":["v","next"]}},"$ref":"#/$defs/node"})",
       {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"},
       {R"({"v":1})", R"({"v":1,"next":{}})"}},
      {R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
      {R"({"$ref":"#/definitions/a","description":"d",)"
       R"("definitions":{"a":{"type":"integer","title":"t"}}})",
       {"1"},
       {"\"a\""}},
      {R"({"$defs":{"a":{"type":"string","minLength":1}},)"
       R"("properties":{"x":{"$ref":"#/$defs/a","maxLength":2}}})",
       {R"({"x":"a"})"},
       {R"({"x":""})", R"({"x":"abc"})"}},
      {R"({"type":"string","format":"date"})",
       {"\"2024-02-29\"", "\"2023-12-31\""},
       {"\"2023-02-29\"", "\"2023-04-31\"", "\"1900-02-29\"", "\"2023-13-01\""}},
      {R"({"type":"string","format":"date-time"})",
       {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.5+01:30\""},
       {"\"2024-01-01\"", "\"2024-01-01T24:00:00Z\""}},
      {R"({"type":"string","format":"uuid"})",
       {"\"123e4567-e89b-12d3-a456-426614174000\""},
       {"\"123e4567\""}},
      {R"({"type":"string","format":"email"})",
       {"\"a.b+c@example.org\""},
       {"\"a@\"", "\"@b.c\"", "\"a@b\""}},
      {R"({"type":"string","format":"ipv4"})",
       {"\"0.0.0.0\"", "\"255.249.10.1\""},
       {"\"256.1.1.1\"", "\"1.1.1\"", "\"01.1.1.1\""}},
      {R"({"type":"string","format":"ipv6"})",
       {"\"::\"", "\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::1:2\"", "\"1::\"",
        "\"1:2:3:4:5:6:7::\""},
       {"\"1:2\"", "\"1::2::3\"", "\"1:2:3:4:5:6:7:8::\""}},
      {R"({"type":"string","format":"duration"})",
       {"\"P3DT4H5M\"", "\"PT36H\"", "\"P2W\""},
       {"\"P\"", "\"PT\"", "\"3D\""}},
      {R"({"type":"string","format":"uri"})",
       {"\"https://example.org/a%20b?x=1#y\""},
       {"\"example\""}},
      {R"({"type":"string","format":"ipv4","maxLength":7})", {"\"1.1.1.1\""}, {"\"10.1.1.1\""}},
  };
  for (const SchemaCase& each : kCases) {
    const auto grammar = SchemaGrammar(each.schema);
    for (const char* text : each.fits)
      EXPECT_TRUE(Takes(grammar, text)) << each.schema << " " << text;
    for (const char* text : each.others)
      EXPECT_FALSE(Takes(grammar, text)) << each.schema << " " << text;
  }
}

TEST(JsonSchemaTest, BoundsOfNumbersAreExact) {
  const std::vector<std::string> bounds = {"-12",  "-10",  "-1",    "0",   "1",
                                           "9",    "10",   "99",    "105", "-0.5",
                                           "0.25", "1.05", "99.99", "1e2", "1e-2"};
  std::vector<std::string> numbers;
  for (int i = -130; i <= 130; ++i) numbers.push_back(std::to_string(i));
  for (const char* more : {"0.0",   "0.2",    "0.25",  "0.250",   "0.2501",
                           "0.249", "-0.5",   "-0.51", "1.0",     "1.04",
                           "1.05",  "1.050",  "1.06",  "10.0",    "9.999",
                           "99.99", "99.991", "100.0", "0.01",    "0.0099",
                           "-12.0", "-12.1",  "-1.0",  "-0.0001", "1000000000000000000000"}) {
    numbers.emplace_back(more);
  }
  for (const bool integer : {true, false}) {
    for (const bool exclusive : {true, false}) {
      for (size_t low = 0; low <= bounds.size(); ++low) {
        for (size_t high = low == bounds.size() ? 0 : low % 3; high <= bounds.size(); high += 3) {
          Json schema = {{"type", integer ? "integer" : "number"}};
          if (low < bounds.size())
            schema[exclusive ? "exclusiveMinimum" : "minimum"] = Json::parse(bounds[low]);
          if (high < bounds.size())
            schema[exclusive ? "exclusiveMaximum" : "maximum"] = Json::parse(bounds[high]);
          std::shared_ptr<const TokenGrammar> grammar;
          try {
            grammar = SchemaGrammar(schema.dump());
          } catch (const InputError&) {
          }
          const SchemaChecker checker(schema);
          for (const std::string& text : numbers) {
            const Json number = Json::parse(text);
            const bool fits =
                checker.Fits(number) && !(integer && text.find('.') != std::string::npos);
            ASSERT_EQ(grammar && Takes(grammar, text), fits) << schema.dump() << " " << text;
          }
        }
      }
    }
  }
}

Json RandomSchema(int depth, std::mt19937& random) {
  const auto inner = [&] { return RandomSchema(depth - 1, random); };
  switch (random() % (depth == 0 ? 7 : 11)) {
    case 0:
      return {{"type", "boolean"}};
    case 1:
      return {{"type", "integer"}, {"minimum", static_cast<int>(random() % 50) - 25}};
    case 2:
      return {{"type", "number"},
              {"exclusiveMaximum", static_cast<int>(random() % 50)},
              {"minimum", -4.5}};
    case 3:
      return {{"type", "string"}, {"minLength", random() % 3}, {"maxLength", 3 + random() % 3}};
    case 4:
      return {{"type", "string"}, {"pattern", random() % 2 == 0 ? "^[a-c]{1,3}$" : "x\\d"}};
    case 5:
      return {{"enum", {"red", "re", 3, nullptr, Json::array({1, "x"})}}};
    case 6:
      return {{"$ref", "#/$defs/tree"}};
    case 7:
      return {{"anyOf", {inner(), inner()}}};
    case 8:
      return {{"type", "array"},
              {"items", inner()},
              {"minItems", random() % 3},
              {"maxItems", 2 + random() % 3}};
    case 9:
      return {{"type", "array"},
              {"prefixItems", {inner(), inner()}},
              {"items", inner()},
              {"maxItems", 3}};
    default: {
      Json schema = {
          {"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
      for (const char* name : {"a", "ab", "b\"", "é"}) {
        if (random() % 3 == 0) continue;
        schema["properties"][name] = inner();
        if (random() % 2 == 0) schema["required"].push_back(name);
      }
      if (random() % 2 == 0) schema["additionalProperties"] = inner();
      if (random() % 3 == 0)
        return {{"allOf", {schema, {{"properties", {{"ab", {{"title", "t"}}}}}}}}};
      return schema;
    }
  }
}

TEST(JsonSchemaTest, WhatIsWrittenFitsTheSchema) {
  int ended = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    Json schema = RandomSchema(3, random);
    schema["$defs"]["tree"] =
        Json::parse(R"({"type":"object","properties":{"l":{"$ref":"#/$defs/tree"},)"
                    R"("n":{"type":"null"}},"required":["n"]})");
    SCOPED_TRACE(schema.dump());
    const auto grammar = SchemaGrammar(schema.dump());
    const SchemaChecker checker(schema);
    for (int i = 0; i < 6; ++i) {
      const auto text = RandomText(grammar, 300, random);
      if (!text) continue;
      ++ended;
      ASSERT_TRUE(Json::accept(*text)) << *text;
      EXPECT_TRUE(checker.Fits(Json::parse(*text))) << *text;
    }
  }
  EXPECT_GT(ended, 400);
}

TEST(JsonSchemaTest, RefusesByPath) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{", "not JSON"},
      {"3", "$: expected a schema"},
      {R"({"type":"strin"})", "$.type: \"strin\""},
      {R"({"properties":{"a":{"multipleOf":3}}})", "$.properties.a.multipleOf: this keyword"},
      {R"({"not":{}})", "$.not"},
      {R"({"if":{}})", "$.if"},
      {R"({"items":{"uniqueItems":true}})", "$.items.uniqueItems"},
      {R"({"minLenght":3})", "$.minLenght"},
      {R"s({"type":"string","pattern":"a(?=b)"})s", "$.pattern: at character 2: lookahead"},
      {R"({"type":"string","format":"phone"})", "'phone' is not supported; expected one of: date"},
      {R"({"$ref":"http://x/y"})", "$.$ref"},
      {R"({"$ref":"#/$defs/none"})", "is not in the schema"},
      {R"({"$defs":{"a":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})", "no text fits"},
      {R"({"allOf":[{"$ref":"#"}]})", "contain themselves"},
      {R"({"type":"object","properties":{"a":false},"required":["a"]})", "no text fits"},
      {R"({"type":"integer","minimum":3,"maximum":2})", "no text fits"},
      {R"({"enum":[]})", "$.enum"},
      {R"({"type":"string","maxLength":-1})", "$.maxLength"},
      {R"({"type":"string","maxLength":1000000})", "too large"},
      {R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})", "pattern: two different values"},
      {R"({"type":"object","properties":{"a":{},"b":{}},)"
       R"("minProperties":1})",
       "optional properties"},
  };
  for (const auto& [schema, expected] : kCases) {
    try {
      SchemaGrammar(schema);
      ADD_FAILURE() << schema;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find("JSON schema: "), 0u);
    }
  }
}

TEST(JsonSchemaTest, ManyOptionalPropertiesAndDeepNestingStaySmall) {
  Json wide = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 500; ++i)
    wide["properties"]["property_" + std::to_string(i)] = {{"type", "string"}};
  EXPECT_TRUE(Takes(SchemaGrammar(wide.dump()), R"({"property_3":"", "property_499":"x"})"));
  Json deep = {{"type", "null"}};
  for (int i = 0; i < 60; ++i) deep = {{"type", "array"}, {"items", deep}, {"maxItems", 50}};
  EXPECT_TRUE(Takes(SchemaGrammar(deep.dump()), "[[[], []]]"));
  for (int i = 0; i < 200; ++i) deep = {{"type", "array"}, {"items", deep}};
  EXPECT_THROW(SchemaGrammar(deep.dump()), InputError);
}

}  // namespace
}  // namespace trimtab
