#include "tools/serve/reply/answer.h"

#include <utility>

namespace trimtab {

Answer::Answer(const Tokenizer& tokenizer, AnswerOptions options, uint64_t seed)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      stream_(options_.stops, options_.keep_stop ? StopText::kKept : StopText::kLeftOut) {
  if (options_.tools != ToolFormat::kNone) {
    parser_ = std::make_unique<ToolCallParser>(options_.tools, seed);
  }
  if (options_.thinks) {
    thoughts_.emplace(*options_.thinks);
    for (auto& [id, text] : ReasoningMarkers(tokenizer)) shown_.emplace(id, text);
  }
  for (auto& [id, text] : ToolMarkers(options_.tools, tokenizer)) shown_.emplace(id, text);
  if (!options_.show_special) return;
  for (const std::string& name : tokenizer.special_names()) {
    if (const std::optional<int32_t> id = tokenizer.SpecialId(name)) shown_.emplace(*id, name);
  }
}

std::string Answer::BytesOf(int32_t token) const {
  const auto found = shown_.find(token);
  return found == shown_.end() ? tokenizer_.BytesOf(token) : found->second;
}

std::string Answer::Trimmed(std::string text) {
  if (!options_.trim_start) return text;
  text.erase(0, text.find_first_not_of(' '));
  options_.trim_start = text.empty();
  return text;
}

Piece Answer::TakeApart(std::string text) {
  Piece piece;
  piece.content = std::move(text);
  if (thoughts_) {
    auto [reasoning, content] = thoughts_->Add(piece.content, ended());
    piece.reasoning = std::move(reasoning);
    piece.content = std::move(content);
  }
  if (parser_ == nullptr) return piece;
  ParsedDelta parsed = parser_->Add(piece.content, ended());
  piece.content = std::move(parsed.content);
  for (ToolCallDelta& call : parsed.calls) {
    if (!options_.one_call || call.index == 0) piece.calls.push_back(std::move(call));
  }
  if (finish_ == "stop" && parser_->called()) finish_ = "tool_calls";
  return piece;
}

void Answer::Keep(const Piece& piece) {
  content_ += piece.content;
  reasoning_ += piece.reasoning;
  for (const ToolCallDelta& call : piece.calls) {
    const auto index = static_cast<size_t>(call.index);
    if (index >= calls_.size()) calls_.resize(index + 1);
    ToolCallDelta& whole = calls_[index];
    whole.index = call.index;
    whole.id += call.id;
    whole.name += call.name;
    whole.arguments += call.arguments;
  }
}

Piece Answer::Add(const std::vector<SampledToken>& tokens, FinishReason finish) {
  begin_ = tokens_.size();
  std::string text;
  for (const SampledToken& token : tokens) {
    if (ended()) break;
    tokens_.push_back(token);
    const std::string bytes = BytesOf(token.id);
    places_.push_back(counter_.Add(bytes));
    text += stream_.Add(bytes);
    if (stream_.stopped()) finish_ = "stop";
  }
  if (!ended() && finish != FinishReason::kNone) {
    text += stream_.Finish();
    finish_ = stream_.stopped() ? "stop" : std::string(Name(finish));
  }
  Piece piece = TakeApart(Trimmed(std::move(text)));
  Keep(piece);
  return piece;
}

double Answer::likelihood() const {
  double sum = 0;
  for (const SampledToken& token : tokens_) sum += token.log_probability;
  return tokens_.empty() ? 0 : sum / static_cast<double>(tokens_.size());
}

}  // namespace trimtab
