#include "engine/infer/api/text_stream.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// The bytes that a character beginning with `first` has; 0 if none begins with it.
size_t CharacterBytes(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 0;
}

/// Whether `next` may be the second byte of a character that begins with `first`: narrower than
/// the others' range where it would be overlong, a surrogate or past U+10FFFF.
bool MaySecond(unsigned char first, unsigned char next) {
  if (first == 0xE0) return next >= 0xA0 && next <= 0xBF;
  if (first == 0xED) return next >= 0x80 && next <= 0x9F;
  if (first == 0xF0) return next >= 0x90 && next <= 0xBF;
  if (first == 0xF4) return next >= 0x80 && next <= 0x8F;
  return next >= 0x80 && next <= 0xBF;
}

/// How many of the first bytes of `bytes` can be the beginning of the one character it starts with.
size_t CharacterPrefix(std::string_view bytes, size_t whole) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  size_t count = 1;
  while (count < whole && count < bytes.size() &&
         (count == 1 ? MaySecond(byte(0), byte(1)) : (byte(count) & 0xC0) == 0x80)) {
    ++count;
  }
  return count;
}

/// Moves what is decided of `bytes` to `text`; with `all`, the rest too.
void MoveCharacters(std::string& bytes, std::string& text, bool all) {
  size_t begin = 0;
  while (begin < bytes.size()) {
    const std::string_view rest = std::string_view(bytes).substr(begin);
    const size_t whole = CharacterBytes(static_cast<unsigned char>(rest[0]));
    const size_t prefix = whole == 0 ? 1 : CharacterPrefix(rest, whole);
    if (prefix < whole && prefix == rest.size() && !all) break;
    text += prefix == whole ? rest.substr(0, whole) : kReplacement;
    begin += prefix;
  }
  bytes.erase(0, begin);
}

/// The length of the longest end of `text` that is a proper beginning of `stop`.
size_t Overlap(std::string_view text, std::string_view stop) {
  for (size_t size = std::min(text.size(), stop.size() - 1); size > 0; --size) {
    if (text.substr(text.size() - size) == stop.substr(0, size)) return size;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(std::vector<std::string> stops, StopText found)
    : stops_(std::move(stops)), keep_stop_(found == StopText::kKept) {
  for (const std::string& stop : stops_) TRIMTAB_ASSERT(!stop.empty(), "an empty stop string");
}

size_t TextStream::EndAt(size_t found) const {
  size_t end = found;
  for (const std::string& stop : stops_) {
    // The shortest of several that begin together was whole first.
    const bool here = keep_stop_ && pending_.compare(found, stop.size(), stop) == 0;
    if (here && (end == found || found + stop.size() < end)) end = found + stop.size();
  }
  return end;
}

std::string TextStream::TakeCertain() {
  size_t found = std::string::npos;
  size_t held = 0;
  for (const std::string& stop : stops_) {
    found = std::min(found, pending_.find(stop));
    held = std::max(held, Overlap(pending_, stop));
  }
  // A stop string that is not whole yet may begin before one that is: wait until that is decided.
  const size_t certain = pending_.size() - held;
  if (found != std::string::npos && found <= certain) {
    stopped_ = true;
    pending_.resize(EndAt(found));
    return std::exchange(pending_, "");
  }
  std::string text = pending_.substr(0, certain);
  pending_.erase(0, certain);
  return text;
}

std::string TextStream::Add(std::string_view bytes) {
  if (stopped_) return "";
  bytes_ += bytes;
  MoveCharacters(bytes_, pending_, /*all=*/false);
  return TakeCertain();
}

std::string TextStream::Finish() {
  if (stopped_) return "";
  MoveCharacters(bytes_, pending_, /*all=*/true);
  std::string text = TakeCertain();
  if (!stopped_) {
    size_t end = pending_.size();
    for (const std::string& stop : stops_) {
      const size_t found = pending_.find(stop);
      if (found == std::string::npos) continue;
      stopped_ = true;
      end = std::min(end, found);
    }
    text += pending_.substr(0, stopped_ ? EndAt(end) : end);
  }
  pending_.clear();
  return text;
}

}  // namespace trimtab
