#include "engine/chat/tool_calls.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <random>

#include "engine/chat/call_reader.h"

namespace trimtab {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

bool IsBlankText(std::string_view text) {
  return text.find_first_not_of(kBlank) == std::string_view::npos;
}

/// How many bytes at the end of `text` may begin `marker`.
size_t HeldBack(std::string_view text, std::string_view marker) {
  for (size_t held = std::min(text.size(), marker.size() - 1); held > 0; --held) {
    if (marker.starts_with(text.substr(text.size() - held))) return held;
  }
  return 0;
}

}  // namespace

/// Text waits in `text_` until it is known what it is.
class ToolCallParser::Reader {
 public:
  explicit Reader(uint64_t seed) : random_(seed) {}
  virtual ~Reader() = default;

  ParsedDelta Add(std::string_view text, bool ended) {
    text_ += text;
    out_ = {};
    Read(ended);
    return std::move(out_);
  }

  bool called() const { return next_index_ > 0; }

 protected:
  /// Takes what it can of `text_`; all of it if `ended`.
  virtual void Read(bool ended) = 0;

  void Content(size_t bytes) {
    std::string content = text_.substr(0, bytes);
    text_.erase(0, bytes);
    // Line breaks between calls are not content.
    if (!called() || !IsBlankText(content)) out_.content += content;
  }

  /// Passes on the content before `marker`, and takes the marker. False if it has not come yet.
  bool ReachMarker(std::string_view marker, bool ended) {
    const size_t found = text_.find(marker);
    if (found == std::string::npos) {
      const std::string_view text = text_;
      const size_t open = text.size() - HeldBack(text, marker);
      Content(ended ? text.size() : text.substr(0, open).find_last_not_of(kBlank) + 1);
      return false;
    }
    // White space before a call is of the call.
    const size_t end = text_.substr(0, found).find_last_not_of(kBlank) + 1;
    Content(end);
    text_.erase(0, found - end + marker.size());
    return true;
  }

  void BeginCall(const std::string& name) {
    out_.calls.push_back({next_index_++, NewId(), name, ""});
  }

  void AddArguments(std::string text) {
    if (text.empty()) return;
    if (!out_.calls.empty() && out_.calls.back().index == next_index_ - 1) {
      out_.calls.back().arguments += text;
    } else {
      out_.calls.push_back({next_index_ - 1, "", "", std::move(text)});
    }
  }

  virtual std::string NewId() { return "call_" + Letters(24); }

  std::string Letters(size_t count) {
    constexpr std::string_view kLetters =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    std::string letters;
    while (letters.size() < count) letters += kLetters[random_() % kLetters.size()];
    return letters;
  }

  enum class Progress { kWaits, kDone, kBroken };

  /// Reads an object of one call from `text_`. What is broken stays in `text_`, with `prefix`
  /// before it, unless the call has begun.
  Progress ReadObject(std::string_view prefix) {
    size_t at = 0;
    bool fits = true;
    while (at < text_.size() && !object_.done() && fits) {
      fits = object_.Add(text_[at]);
      ++at;
    }
    raw_ += text_.substr(0, at);
    text_.erase(0, at);
    if (!fits) {
      if (!begun_) text_ = std::string(prefix) + raw_ + text_;
      Restart();
      return Progress::kBroken;
    }
    if (object_.has_name() && !begun_) {
      begun_ = true;
      BeginCall(object_.name());
    }
    AddArguments(object_.TakeArguments());
    if (!object_.done()) return Progress::kWaits;
    Restart();
    return Progress::kDone;
  }

  /// At the end of the answer: gives what has come of an object that never began a call.
  void GiveUpObject(std::string_view prefix) {
    if (!begun_) out_.content += std::string(prefix) + raw_;
    Restart();
  }

  void Restart() {
    object_ = {};
    raw_.clear();
    begun_ = false;
  }

  std::string text_;
  ParsedDelta out_;
  int64_t next_index_ = 0;

 private:
  std::mt19937_64 random_;
  CallReader object_;
  std::string raw_;     // of the object
  bool begun_ = false;  // its name is passed on
};

namespace {

class NoCalls : public ToolCallParser::Reader {
 public:
  using Reader::Reader;

 private:
  void Read(bool /*ended*/) override { Content(text_.size()); }
};

/// <tool_call>{...}</tool_call>
class HermesCalls : public ToolCallParser::Reader {
 public:
  using Reader::Reader;

 private:
  static constexpr std::string_view kBegin = "<tool_call>";
  static constexpr std::string_view kEnd = "</tool_call>";

  void Read(bool ended) override {
    while (true) {
      if (inside_ == Inside::kNothing) {
        if (!ReachMarker(kBegin, ended)) return;
        inside_ = Inside::kObject;
      }
      if (inside_ == Inside::kObject) {
        const Progress progress = ReadObject(kBegin);
        if (progress == Progress::kWaits) {
          if (ended) GiveUpObject(kBegin);
          return;
        }
        inside_ = progress == Progress::kDone ? Inside::kEnd : Inside::kNothing;
        if (progress == Progress::kBroken) {
          // Past the marker, so that it is not found again.
          Content(std::min(kBegin.size(), text_.size()));
          continue;
        }
      }
      const size_t begin = std::min(text_.find_first_not_of(kBlank), text_.size());
      const std::string_view rest = std::string_view(text_).substr(begin);
      if (!ended && kEnd.starts_with(rest) && rest.size() < kEnd.size()) return;
      if (rest.starts_with(kEnd)) text_.erase(0, begin + kEnd.size());
      inside_ = Inside::kNothing;
    }
  }

  enum class Inside { kNothing, kObject, kEnd };
  Inside inside_ = Inside::kNothing;
};

/// {"name": ..., "parameters": ...}, several with ';' between them, perhaps after <|python_tag|>.
class Llama3Calls : public ToolCallParser::Reader {
 public:
  using Reader::Reader;

 private:
  static constexpr std::string_view kTag = "<|python_tag|>";

  void Read(bool ended) override {
    if (at_ == At::kStart) {
      const size_t begin = text_.find_first_not_of(kBlank);
      if (begin == std::string::npos) {
        if (ended) Content(text_.size());
        return;
      }
      at_ = text_[begin] == '{' ? At::kObject : At::kContent;
    }
    while (true) {
      if (at_ == At::kContent) {
        if (!ReachMarker(kTag, ended)) return;
        at_ = At::kObject;
        prefix_ = kTag;
      }
      if (at_ == At::kBetween) {
        const size_t begin = text_.find_first_not_of(" \t\r\n;");
        if (begin == std::string::npos) return;
        if (text_[begin] != '{') {
          at_ = At::kContent;
          continue;
        }
        text_.erase(0, begin);
        at_ = At::kObject;
        prefix_ = "";
      }
      const Progress progress = ReadObject(prefix_);
      if (progress == Progress::kWaits) {
        if (ended) GiveUpObject(prefix_);
        return;
      }
      if (progress == Progress::kBroken) {
        Content(std::min(prefix_.size(), text_.size()));
        at_ = At::kContent;
      } else {
        at_ = At::kBetween;
      }
    }
  }

  enum class At { kStart, kContent, kObject, kBetween };
  At at_ = At::kStart;
  std::string_view prefix_;
};

/// [TOOL_CALLS][{...}, {...}], or [TOOL_CALLS]name[ARGS]{...} for each call.
class MistralCalls : public ToolCallParser::Reader {
 public:
  using Reader::Reader;

 private:
  static constexpr std::string_view kBegin = "[TOOL_CALLS]";
  static constexpr std::string_view kArguments = "[ARGS]";
  static constexpr std::string_view kId = "[CALL_ID]";

  /// Mistral's templates take ids of nine letters and digits only.
  std::string NewId() override { return Letters(9); }

  void Read(bool ended) override {
    while (true) {
      if (at_ == At::kContent) {
        if (!ReachMarker(kBegin, ended)) return;
        at_ = At::kBegin;
      }
      if (at_ == At::kBegin) {
        const size_t begin = text_.find_first_not_of(kBlank);
        if (begin == std::string::npos) return;
        text_.erase(0, begin);
        at_ = text_[0] == '[' ? At::kObject : At::kName;
        if (at_ == At::kObject) text_.erase(0, 1);
      }
      if (at_ == At::kName && !ReadName(ended)) return;
      if (at_ == At::kContent) continue;
      if (at_ == At::kValue && !ReadValue()) return;
      if (at_ == At::kObject && !ReadListed(ended)) return;
    }
  }

  bool ReadName(bool ended) {
    const size_t brace = text_.find('{');
    if (brace == std::string::npos) {
      if (ended) Content(text_.size());
      return false;
    }
    std::string name = text_.substr(0, brace);
    for (const std::string_view marker : {kArguments, kId}) {
      name = name.substr(0, name.find(marker));
    }
    name = name.substr(0, name.find_last_not_of(kBlank) + 1);
    if (name.empty() || name.find_first_of("[]\"") != std::string::npos) {
      out_.content += kBegin;
      at_ = At::kContent;
      return true;
    }
    text_.erase(0, brace);
    BeginCall(name);
    at_ = At::kValue;
    depth_ = 0;
    in_string_ = escaped_ = false;
    return true;
  }

  bool ReadValue() {
    size_t end = 0;
    bool done = false;
    for (; end < text_.size() && !done; ++end) {
      const char c = text_[end];
      if (in_string_) {
        in_string_ = escaped_ || c != '"';
        escaped_ = !escaped_ && c == '\\';
        continue;
      }
      in_string_ = c == '"';
      if (c == '{' || c == '[') ++depth_;
      if (c == '}' || c == ']') done = --depth_ == 0;
    }
    AddArguments(text_.substr(0, end));
    text_.erase(0, end);
    if (done) at_ = At::kContent;
    return done;
  }

  /// One object of the list and what stands behind it.
  bool ReadListed(bool ended) {
    if (between_) {
      const size_t begin = text_.find_first_not_of(" \t\r\n,");
      if (begin == std::string::npos) return false;
      text_.erase(0, begin);
      between_ = false;
      if (text_[0] != '{') {
        if (text_[0] == ']') text_.erase(0, 1);
        at_ = At::kContent;
        return true;
      }
    }
    const Progress progress = ReadObject("[TOOL_CALLS][");
    if (progress == Progress::kWaits) {
      if (ended) GiveUpObject("[TOOL_CALLS][");
      return false;
    }
    if (progress == Progress::kBroken) {
      Content(std::min(kBegin.size(), text_.size()));
      at_ = At::kContent;
    } else {
      between_ = true;
    }
    return true;
  }

  enum class At { kContent, kBegin, kName, kValue, kObject };
  At at_ = At::kContent;
  bool between_ = false;  // objects of the list
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

/// <｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME, then the arguments in a block of code; later
/// versions write the name in the place of "function" and the arguments behind it.
class DeepSeekCalls : public ToolCallParser::Reader {
 public:
  using Reader::Reader;

 private:
  static constexpr std::string_view kAllBegin = "<｜tool▁calls▁begin｜>";
  static constexpr std::string_view kAllEnd = "<｜tool▁calls▁end｜>";
  static constexpr std::string_view kBegin = "<｜tool▁call▁begin｜>";
  static constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
  static constexpr std::string_view kEnd = "<｜tool▁call▁end｜>";

  void Read(bool ended) override {
    while (true) {
      if (!within_) {
        if (!ReachMarker(kAllBegin, ended)) return;
        within_ = true;
      }
      const size_t end = text_.find(kEnd);
      const size_t all_end = text_.find(kAllEnd);
      if (all_end < end) {
        text_.erase(0, all_end + kAllEnd.size());
        within_ = false;
        continue;
      }
      if (end == std::string::npos) {
        if (ended && text_.find(kBegin) != std::string::npos) ReadCall(text_);
        return;
      }
      ReadCall(text_.substr(0, end));
      text_.erase(0, end + kEnd.size());
    }
  }

  void ReadCall(std::string call) {
    const size_t begin = call.find(kBegin);
    const size_t separator = call.find(kSeparator);
    if (begin == std::string::npos || separator == std::string::npos || separator < begin) return;
    std::string name = call.substr(begin + kBegin.size(), separator - begin - kBegin.size());
    std::string arguments = call.substr(separator + kSeparator.size());
    const size_t fence = arguments.find("```json");
    if (name == "function" && fence != std::string::npos) {
      name = arguments.substr(0, arguments.find_first_of(kBlank));
      arguments = arguments.substr(fence + std::string_view("```json").size());
      arguments = arguments.substr(0, arguments.rfind("```"));
    }
    const size_t first = std::min(arguments.find_first_not_of(kBlank), arguments.size());
    arguments = arguments.substr(first, arguments.find_last_not_of(kBlank) + 1 - first);
    if (name.empty()) {
      out_.content += call;
      return;
    }
    BeginCall(name);
    AddArguments(std::move(arguments));
  }

  bool within_ = false;
};

std::unique_ptr<ToolCallParser::Reader> MakeReader(ToolFormat format, uint64_t seed) {
  switch (format) {
    case ToolFormat::kHermes:
      return std::make_unique<HermesCalls>(seed);
    case ToolFormat::kLlama3Json:
      return std::make_unique<Llama3Calls>(seed);
    case ToolFormat::kMistral:
      return std::make_unique<MistralCalls>(seed);
    case ToolFormat::kDeepSeek:
      return std::make_unique<DeepSeekCalls>(seed);
    case ToolFormat::kNone:
      break;
  }
  return std::make_unique<NoCalls>(seed);
}

}  // namespace

ToolCallParser::ToolCallParser(ToolFormat format, uint64_t seed)
    : reader_(MakeReader(format, seed)) {}
ToolCallParser::~ToolCallParser() = default;

ParsedDelta ToolCallParser::Add(std::string_view text, bool ended) {
  return reader_->Add(text, ended);
}

bool ToolCallParser::called() const { return reader_->called(); }

std::vector<std::pair<int32_t, std::string>> ToolMarkers(ToolFormat format,
                                                         const Tokenizer& tokenizer) {
  std::vector<const char*> names;
  switch (format) {
    case ToolFormat::kHermes:
      names = {"<tool_call>", "</tool_call>"};
      break;
    case ToolFormat::kLlama3Json:
      names = {"<|python_tag|>"};
      break;
    case ToolFormat::kMistral:
      names = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"};
      break;
    case ToolFormat::kDeepSeek:
      names = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
               "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"};
      break;
    case ToolFormat::kNone:
      break;
  }
  std::vector<std::pair<int32_t, std::string>> markers;
  for (const char* name : names) {
    if (const auto id = tokenizer.SpecialId(name)) markers.emplace_back(*id, name);
  }
  return markers;
}

}  // namespace trimtab
