// TextStream: the text of an answer while it grows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trimtab {

/// What becomes of a stop string.
enum class StopText {
  kLeftOut,  // it and all behind it are not part of the text
  kKept,     // it is the end of the text
};

/// Takes the bytes of token after token and gives out what can no longer change: whole characters,
/// and nothing that may turn out to be the beginning of a stop string. What is not UTF-8 becomes
/// U+FFFD, one for each run that cannot begin or go on a character (as the Unicode Standard
/// recommends), so what is given out is always UTF-8.
class TextStream {
 public:
  /// None of `stops` may be empty. They are matched in the text that is given out.
  explicit TextStream(std::vector<std::string> stops = {}, StopText found = StopText::kLeftOut);

  /// The next bytes; returns the text that is now certain. After a stop it returns nothing.
  std::string Add(std::string_view bytes);
  /// The answer ends here: returns the rest.
  std::string Finish();

  /// True once a stop string came: of several the one that begins first.
  bool stopped() const { return stopped_; }

 private:
  std::string TakeCertain();
  /// The end of the text in what is pending, of which a stop begins at `found`.
  size_t EndAt(size_t found) const;

  std::vector<std::string> stops_;
  bool keep_stop_;
  std::string bytes_;    // of a character that is not whole yet
  std::string pending_;  // text not given out yet
  bool stopped_ = false;
};

}  // namespace trimtab
