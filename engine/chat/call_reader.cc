#include "engine/chat/call_reader.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace trimtab {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/// The text that a JSON string says; false if it is none.
bool Decode(const std::string& raw, std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(raw, nullptr, false);
  if (!json.is_string()) return false;
  text = json.get<std::string>();
  return true;
}

}  // namespace

std::string CallReader::TakeArguments() {
  if (!has_name_) return "";
  if (done() && !has_arguments_) {
    has_arguments_ = true;
    arguments_ = "{}";
  }
  return std::exchange(arguments_, "");
}

/// A character of a string that has begun; true at its end.
bool CallReader::AddToString(char c, std::string& raw) {
  raw += c;
  if (escaped_) {
    escaped_ = false;
    return false;
  }
  escaped_ = c == '\\';
  return c == '"';
}

bool CallReader::EndValue() {
  state_ = State::kAfterValue;
  if (key_ == "name") {
    has_name_ = Decode(value_, name_) && !name_.empty();
    return has_name_;
  }
  if (!is_arguments() || streams_ || value_.empty()) return true;
  return Decode(value_, arguments_);  // arguments as a text that says JSON
}

bool CallReader::AddToValue(char c) {
  std::string& raw = streams_ ? arguments_ : value_;
  if (in_string_) {
    if (!AddToString(c, raw)) return true;
    in_string_ = false;
    return closing_.empty() ? EndValue() : true;
  }
  if (c == '"') {
    raw += c;
    in_string_ = true;
    return true;
  }
  if (c == '{' || c == '[') {
    closing_ += c == '{' ? '}' : ']';
    raw += c;
    return true;
  }
  if (!closing_.empty()) {
    raw += c;
    if (c != '}' && c != ']') return true;
    if (c != closing_.back()) return false;
    closing_.pop_back();
    return closing_.empty() ? EndValue() : true;
  }
  // A number, true, false or null ends where something else follows.
  if (c != ',' && c != '}' && !IsBlank(c)) {
    raw += c;
    return true;
  }
  if (is_arguments()) {
    if (value_ != "null") return false;
    value_.clear();
    has_arguments_ = false;
  }
  return EndValue() && (IsBlank(c) || Add(c));
}

bool CallReader::Add(char c) {
  switch (state_) {
    case State::kBegin:
      if (IsBlank(c)) return true;
      state_ = State::kKeyOrEnd;
      return c == '{';
    case State::kKeyOrEnd:
      if (IsBlank(c)) return true;
      if (c == '}') {
        state_ = State::kDone;
        return has_name_;
      }
      key_ = c;
      state_ = State::kKey;
      return c == '"';
    case State::kKey:
      if (!AddToString(c, key_)) return true;
      state_ = State::kColon;
      return Decode(std::string(key_), key_);
    case State::kColon:
      if (IsBlank(c)) return true;
      state_ = State::kValue;
      return c == ':';
    case State::kValue:
      if (IsBlank(c)) return true;
      if (c == ',' || c == '}' || c == ']') return false;
      value_.clear();
      has_arguments_ = has_arguments_ || is_arguments();
      streams_ = is_arguments() && (c == '{' || c == '[');
      state_ = State::kInValue;
      return AddToValue(c);
    case State::kInValue:
      return AddToValue(c);
    case State::kAfterValue:
      if (IsBlank(c)) return true;
      state_ = c == ',' ? State::kKeyOrEnd : State::kDone;
      return c == ',' || (c == '}' && has_name_);
    case State::kDone:
      return false;
  }
  return false;
}

}  // namespace trimtab
