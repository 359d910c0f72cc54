// One call as a JSON object, read while it grows.
#pragma once

#include <string>

namespace trimtab {

/// Reads {"name": TEXT, "arguments": VALUE}, also with "parameters", and other keys, in any order.
/// Arguments are passed on as they come, once the name is known.
class CallReader {
 public:
  /// Takes the next character. False for one that cannot follow.
  bool Add(char c);

  bool started() const { return state_ != State::kBegin; }
  bool done() const { return state_ == State::kDone; }
  bool has_name() const { return has_name_; }
  const std::string& name() const { return name_; }
  /// The part of the arguments that has come since; "{}" at the end if there are none.
  std::string TakeArguments();

 private:
  enum class State { kBegin, kKeyOrEnd, kKey, kColon, kValue, kInValue, kAfterValue, kDone };

  bool AddToString(char c, std::string& raw);
  bool AddToValue(char c);
  bool EndValue();
  bool is_arguments() const { return key_ == "arguments" || key_ == "parameters"; }

  State state_ = State::kBegin;
  std::string key_;
  std::string value_;    // raw, but that of arguments, unless they are a text
  std::string closing_;  // brackets of the value that are open
  bool in_string_ = false;
  bool escaped_ = false;
  bool streams_ = false;  // the value is that of arguments and goes to `arguments_`
  bool has_name_ = false;
  bool has_arguments_ = false;
  std::string name_;
  std::string arguments_;  // not yet taken
};

}  // namespace trimtab
