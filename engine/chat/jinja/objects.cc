#include "engine/chat/jinja/objects.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/chat/jinja/interpreter.h"
#include "engine/chat/jinja/print.h"

namespace trimtab::jinja {

std::optional<Value> Namespace::Attribute(const std::string& name) {
  const Value* found = attributes_.Find(std::string_view(name));
  return found == nullptr ? std::nullopt : std::optional<Value>(*found);
}

void Namespace::Set(const std::string& name, Value value) {
  attributes_.Set(Value(name), std::move(value));
}

std::optional<Value> Macro::Attribute(const std::string& name) {
  if (name == "name") return Value(name_);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names(statement_.signature.names.begin(), statement_.signature.names.end());
  return Value::Tuple(std::move(names));
}

Value Macro::Call(Interpreter& interpreter, Arguments& arguments) {
  const DepthGuard guard;
  const Signature& signature = statement_.signature;
  const auto scope = std::make_shared<Scope>(scope_);
  const size_t count = signature.names.size();
  std::vector<std::optional<Value>> values(count);
  std::vector<Value> more;
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < count) {
      values[i] = arguments.positional[i];
    } else {
      more.push_back(arguments.positional[i]);
    }
  }
  Entries more_keywords;
  for (const auto& [name, value] : arguments.keywords) {
    const auto found = std::ranges::find(signature.names, name);
    if (found != signature.names.end()) {
      std::optional<Value>& place = values[static_cast<size_t>(found - signature.names.begin())];
      if (place) throw Failure(fmt::format("macro '{}' got two values for '{}'", name_, name));
      place = value;
    } else if (name == "caller" && signature.takes_caller) {
      scope->Set("caller", value);
    } else if (signature.takes_more_keywords) {
      more_keywords.emplace_back(Value(name), value);
    } else {
      throw Failure(fmt::format("macro '{}' takes no keyword argument '{}'", name_, name));
    }
  }
  if (!more.empty() && !signature.takes_more) {
    throw Failure(fmt::format("macro '{}' takes not more than {} argument(s)", name_, count));
  }
  for (size_t i = 0; i < count; ++i) {
    const size_t first_default = count - signature.defaults.size();
    if (values[i]) {
      scope->Set(signature.names[i], *values[i]);
    } else if (i >= first_default) {
      scope->Set(signature.names[i],
                 interpreter.Evaluate(*signature.defaults[i - first_default], scope));
    } else {
      scope->Set(signature.names[i], Value::Missing(fmt::format("parameter '{}' was not provided",
                                                                signature.names[i])));
    }
  }
  if (signature.takes_more) scope->Set("varargs", Value::Tuple(std::move(more)));
  if (signature.takes_more_keywords) scope->Set("kwargs", MakeDict(more_keywords));
  if (signature.takes_caller && scope->variables.find("caller") == scope->variables.end()) {
    scope->Set("caller", Value::Missing("No caller defined"));
  }
  return Value(interpreter.TextOf(statement_.bodies[0], scope));
}

Loop::Loop(std::vector<Value> items) : items_(std::move(items)) {
  for (const Value& item : items_) Keeps(item);
}

Value Loop::ItemAt(int64_t index, const char* name) const {
  if (index >= 0 && index < std::ssize(items_)) return items_[static_cast<size_t>(index)];
  return Value::Missing(fmt::format("there is no {} item", name));
}

std::optional<Value> Loop::Attribute(const std::string& name) {
  const int64_t length = std::ssize(items_);
  if (name == "index") return index_ + 1;
  if (name == "index0") return index_;
  if (name == "revindex") return length - index_;
  if (name == "revindex0") return length - index_ - 1;
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(index_ == length - 1);
  if (name == "length") return length;
  if (name == "depth") return int64_t{1};
  if (name == "depth0") return int64_t{0};
  if (name == "previtem") return ItemAt(index_ - 1, "previous");
  if (name == "nextitem") return ItemAt(index_ + 1, "next");
  const Value self{std::shared_ptr<Object>(shared_from_this())};
  if (name == "cycle") {
    return Value(std::make_shared<Function>(name, self, [self](Interpreter&, Arguments& all) {
      if (all.positional.empty()) throw Failure("no items for cycling given");
      const auto& loop = dynamic_cast<const Loop&>(*self.object());
      return all.positional[static_cast<size_t>(loop.index_) % all.positional.size()];
    }));
  }
  if (name == "changed") {
    return Value(std::make_shared<Function>(name, self, [self](Interpreter&, Arguments& all) {
      auto& loop = dynamic_cast<Loop&>(*self.object());
      const bool same =
          loop.last_changed_ && std::ranges::equal(*loop.last_changed_, all.positional, Equal);
      if (!same) {
        for (const Value& each : all.positional) loop.Keeps(each);
        loop.last_changed_ = all.positional;
      }
      return Value(!same);
    }));
  }
  return std::nullopt;
}

}  // namespace trimtab::jinja
