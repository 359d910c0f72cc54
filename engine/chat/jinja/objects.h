// Values that are neither text, number nor container.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/chat/jinja/syntax.h"
#include "engine/chat/jinja/value.h"

namespace trimtab::jinja {

struct Scope;

/// A function of C++.
class Function : public Object {
 public:
  using Body = std::function<Value(Interpreter&, Arguments&)>;

  Function(std::string name, Body body) : name_(std::move(name)), body_(std::move(body)) {}
  /// A method of `self`, which `body` keeps.
  Function(std::string name, const Value& self, Body body)
      : Function(std::move(name), std::move(body)) {
    Keeps(self);
  }
  std::string type() const override { return "function"; }
  bool callable() const override { return true; }
  Value Call(Interpreter& interpreter, Arguments& arguments) override {
    return body_(interpreter, arguments);
  }
  Text Print() const override { return Text("<function " + name_ + ">"); }

 private:
  std::string name_;
  Body body_;
};

/// namespace(): attributes that `set` can change from within loops.
class Namespace : public Object {
 public:
  std::string type() const override { return "Namespace"; }
  std::optional<Value> Attribute(const std::string& name) override;
  void Set(const std::string& name, Value value);
  void Clear() { attributes_ = Dict(); }

 private:
  Dict attributes_;
};

/// A macro, or the body of a call block as `caller`. Its scope is the interpreter's to destroy.
class Macro : public Object {
 public:
  Macro(const Statement& statement, std::string name, std::shared_ptr<Scope> scope)
      : statement_(statement), name_(std::move(name)), scope_(std::move(scope)) {}
  std::string type() const override { return "Macro"; }
  bool callable() const override { return true; }
  std::optional<Value> Attribute(const std::string& name) override;
  Value Call(Interpreter& interpreter, Arguments& arguments) override;
  Text Print() const override { return Text("<Macro '" + name_ + "'>"); }

 private:
  const Statement& statement_;
  std::string name_;
  std::shared_ptr<Scope> scope_;
};

/// The variable `loop`.
class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  explicit Loop(std::vector<Value> items);
  std::string type() const override { return "LoopContext"; }
  std::optional<Value> Attribute(const std::string& name) override;

  /// Goes on to the next item; false at the end.
  bool Next() { return ++index_ < std::ssize(items_); }
  const Value& item() const { return items_[static_cast<size_t>(index_)]; }

 private:
  Value ItemAt(int64_t index, const char* name) const;

  std::vector<Value> items_;
  int64_t index_ = -1;
  std::optional<std::vector<Value>> last_changed_;
};

/// The functions that every template has, by name.
const std::vector<std::pair<std::string, Value>>& GlobalFunctions();

}  // namespace trimtab::jinja
