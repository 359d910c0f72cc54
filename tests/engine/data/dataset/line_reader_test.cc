#include "engine/data/dataset/line_reader.h"

#include "engine/base/error.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

/// The lines of the text, each with a newline if it had one.
std::vector<std::string> Lines(const std::string& text) {
  const std::string path = ScratchFolder() + "/in";
  WriteBytes(path, text);
  LineReader reader(path, LineCheck::kUtf8, "text", /*name_line=*/true);
  std::vector<std::string> lines;
  std::string line;
  bool ended = false;
  while (reader.Next(line, ended)) {
    lines.push_back(line + (ended ? "\n" : ""));
    EXPECT_EQ(reader.where(), path + ":" + std::to_string(lines.size()));
  }
  return lines;
}

using Strings = std::vector<std::string>;

TEST(LineReader, SplitsAtNewlines) {
  EXPECT_EQ(Lines(""), Strings{});
  EXPECT_EQ(Lines("\n"), Strings{"\n"});
  EXPECT_EQ(Lines("a\n\nb\r\nc"), (Strings{"a\n", "\n", "b\r\n", "c"}));
}

TEST(LineReader, JoinsLinesLongerThanItsBuffer) {
  for (const size_t size : {65535, 65536, 65537, 200000}) {
    const std::string longest(size, 'x');
    EXPECT_EQ(Lines(longest), Strings{longest});
    EXPECT_EQ(Lines(longest + "\n\xc3\xa9"), (Strings{longest + "\n", "\xc3\xa9"}));
    EXPECT_EQ(Lines(longest + "\xc3\xa9\nb"), (Strings{longest + "\xc3\xa9\n", "b"}));
  }
}

TEST(LineReader, NamesTheLineAndTheByteOfAFault) {
  const std::string text = std::string(70000, 'x') + "\n\xff";
  const std::string message = MessageOf<InputError>([&] { Lines(text); });
  EXPECT_NE(message.find("/in:2: invalid UTF-8 (0xff) at byte 70001 of the file; expected text"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace trimtab
