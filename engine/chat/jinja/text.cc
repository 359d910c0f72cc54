#include "engine/chat/jinja/text.h"

#include <algorithm>
#include <utility>

namespace trimtab::jinja {

Text::Text(std::string bytes, Marks marks) : bytes_(std::move(bytes)) {
  if (!bytes_.empty()) runs_.push_back({bytes_.size(), marks});
}

Marks Text::MarksAt(size_t position) const {
  const auto run = std::ranges::upper_bound(runs_, position, {}, &Run::end);
  return run == runs_.end() ? kPlain : run->marks;
}

Text& Text::Append(const Text& other) { return Append(other, 0, other.size()); }

Text& Text::Append(std::string_view bytes, Marks marks) {
  if (bytes.empty()) return *this;
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().marks == marks) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), marks});
  }
  return *this;
}

Text& Text::Append(const Text& other, size_t begin, size_t end) {
  if (&other == this) return Append(Slice(begin, end));
  auto run = std::ranges::upper_bound(other.runs_, begin, {}, &Run::end);
  for (; begin < end; ++run) {
    const size_t stop = std::min(end, run->end);
    Append(std::string_view(other.bytes_).substr(begin, stop - begin), run->marks);
    begin = stop;
  }
  return *this;
}

Text Text::Slice(size_t begin, size_t end) const {
  Text slice;
  slice.Append(*this, begin, end);
  return slice;
}

void Text::Mark(Marks marks) {
  const std::vector<Run> old = std::exchange(runs_, {});
  for (const Run& run : old) {
    const auto added = static_cast<Marks>(run.marks | marks);
    if (!runs_.empty() && runs_.back().marks == added) {
      runs_.back().end = run.end;
    } else {
      runs_.push_back({run.end, added});
    }
  }
}

}  // namespace trimtab::jinja
