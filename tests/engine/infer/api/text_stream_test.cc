#include "engine/infer/api/text_stream.h"

#include <gtest/gtest.h>

#include <random>

namespace trimtab {
namespace {

struct Streamed {
  std::string text;
  bool stopped = false;
};

/// `bytes` in pieces of `size`, until a stop string.
Streamed Stream(std::string_view bytes, size_t size, std::vector<std::string> stops = {}) {
  TextStream stream(std::move(stops));
  std::string text;
  for (size_t begin = 0; begin < bytes.size() && !stream.stopped(); begin += size) {
    text += stream.Add(bytes.substr(begin, size));
  }
  text += stream.Finish();
  return {text, stream.stopped()};
}

TEST(TextStream, GivesWholeCharactersWhateverThePieces) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";
  for (size_t size = 1; size <= text.size(); ++size) EXPECT_EQ(Stream(text, size).text, text);
  TextStream stream;
  EXPECT_EQ(stream.Add("a\xE2"), "a");
  EXPECT_EQ(stream.Add("\x82"), "");
  EXPECT_EQ(stream.Add("\xAC"), "\xE2\x82\xAC");
}

TEST(TextStream, ReplacesWhatIsNotUtf8) {
  const std::string r = "\xEF\xBF\xBD";
  for (size_t size = 1; size < 6; ++size) {
    EXPECT_EQ(Stream("a\x80z", size).text, "a" + r + "z");
    EXPECT_EQ(Stream("a\xFF\xFEz", size).text, "a" + r + r + "z");
    EXPECT_EQ(Stream("\xE2\x82z", size).text, r + "z");  // a character that was cut: one mark
    EXPECT_EQ(Stream("\xE2\x82", size).text, r);
    EXPECT_EQ(Stream("\xED\xA0\x80", size).text, r + r + r);  // a surrogate
    EXPECT_EQ(Stream("\xC0\xAF", size).text, r + r);          // overlong
    EXPECT_EQ(Stream("\xF0\x9F\x98\xE2\x82\xAC", size).text, r + "\xE2\x82\xAC");
  }
}

TEST(TextStream, EndsBeforeTheFirstStopString) {
  for (size_t size = 1; size < 8; ++size) {
    const Streamed streamed = Stream("one two three", size, {"three", "two"});
    EXPECT_EQ(streamed.text, "one ");
    EXPECT_TRUE(streamed.stopped);
  }
  EXPECT_FALSE(Stream("one two", 1, {"twos"}).stopped);
  EXPECT_EQ(Stream("one two", 1, {"twos"}).text, "one two");
}

TEST(TextStream, HoldsBackWhatMayBecomeAStopString) {
  TextStream stream({"\n\nUser"});
  EXPECT_EQ(stream.Add("yes\n"), "yes");
  EXPECT_EQ(stream.Add("\nUs"), "");
  EXPECT_EQ(stream.Add("ing"), "\n\nUsing");
  EXPECT_EQ(stream.Add("\n\n\n"), "\n");
  EXPECT_EQ(stream.Add("User"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.Add("more"), "");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(TextStream, DoesNotWaitForALongerStopStringAtTheSamePlace) {
  TextStream stream({"{", "{{"});
  EXPECT_EQ(stream.Add("x{"), "x");
  EXPECT_TRUE(stream.stopped());
}

/// What a stream must give: everything before the first place where any stop string begins.
Streamed Expected(const std::string& text, const std::vector<std::string>& stops) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops) first = std::min(first, text.find(stop));
  return {text.substr(0, first), first != std::string::npos};
}

TEST(TextStream, AgreesWithASearchOfTheWholeText) {
  std::mt19937 random(7);
  const auto word = [&](size_t size) {
    std::string letters;
    while (letters.size() < size) letters += "ab"[random() % 2];
    return letters;
  };
  for (int round = 0; round < 3000; ++round) {
    const std::string text = word(random() % 24);
    std::vector<std::string> stops;
    while (stops.size() < 1 + round % 3u) stops.push_back(word(1 + random() % 5));
    const Streamed expected = Expected(text, stops);
    const Streamed streamed = Stream(text, 1 + random() % 4, stops);
    ASSERT_EQ(streamed.text, expected.text) << text << " / " << stops[0];
    ASSERT_EQ(streamed.stopped, expected.stopped) << text << " / " << stops[0];
  }
}

}  // namespace
}  // namespace trimtab
