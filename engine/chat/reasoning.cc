#include "engine/chat/reasoning.h"

#include <algorithm>

namespace trimtab {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";
constexpr std::string_view kSpace = " \t\r\n";

}  // namespace

ReasoningParser::ReasoningParser(bool begins_inside)
    : at_(begins_inside ? At::kThought : At::kStart) {}

/// True at the end of the thought.
bool ReasoningParser::ReadThought(bool ended, ReasonedDelta& out) {
  const size_t close = text_.find(kClose);
  const bool closed = close != std::string::npos;
  size_t end = closed ? close : text_.size();
  if (!closed && !ended) {
    for (size_t held = std::min(end, kClose.size() - 1); held > 0; --held) {
      if (!kClose.starts_with(std::string_view(text_).substr(end - held, held))) continue;
      end -= held;
      break;
    }
  }
  // White space waits: it is left out if the thought ends behind it.
  const size_t written = std::string_view(text_).substr(0, end).find_last_not_of(kSpace) + 1;
  const size_t begin = thought_begun_ ? 0 : std::min(text_.find_first_not_of(kSpace), written);
  out.reasoning += text_.substr(begin, written - begin);
  thought_begun_ |= written > begin;
  text_.erase(0, closed ? close + kClose.size() : ended ? text_.size() : written);
  return closed;
}

ReasonedDelta ReasoningParser::Add(std::string_view text, bool ended) {
  ReasonedDelta out;
  text_ += text;
  if (at_ == At::kStart) {
    const size_t begin = std::min(text_.find_first_not_of(kSpace), text_.size());
    const std::string_view rest = std::string_view(text_).substr(begin);
    if (!ended && rest.size() < kOpen.size() && kOpen.starts_with(rest)) return out;
    at_ = rest.starts_with(kOpen) ? At::kThought : At::kContent;
    if (at_ == At::kThought) text_.erase(0, begin + kOpen.size());
  }
  if (at_ == At::kThought && ReadThought(ended, out)) at_ = At::kBehind;
  if (at_ == At::kBehind) {
    text_.erase(0, std::min(text_.find_first_not_of(kSpace), text_.size()));
    if (!text_.empty()) at_ = At::kContent;
  }
  if (at_ == At::kContent) {
    out.content += text_;
    text_.clear();
  }
  return out;
}

bool EndsInThought(const jinja::Text& prompt) {
  const std::string_view text = prompt.bytes();
  return text.substr(0, text.find_last_not_of(kSpace) + 1).ends_with(kOpen);
}

std::vector<std::pair<int32_t, std::string>> ReasoningMarkers(const Tokenizer& tokenizer) {
  std::vector<std::pair<int32_t, std::string>> markers;
  for (const std::string_view name : {kOpen, kClose}) {
    if (const auto id = tokenizer.SpecialId(name)) markers.emplace_back(*id, name);
  }
  return markers;
}

}  // namespace trimtab
