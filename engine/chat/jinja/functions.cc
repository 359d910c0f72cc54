#include <fmt/core.h>

#include <algorithm>
#include <ctime>

#include "engine/chat/jinja/arguments.h"
#include "engine/chat/jinja/interpreter.h"
#include "engine/chat/jinja/objects.h"
#include "engine/chat/jinja/print.h"

namespace trimtab::jinja {
namespace {

/// Longer ranges are refused, as Jinja's sandbox does.
constexpr int64_t kMaxRange = 100000;

Value Range(Interpreter& /*interpreter*/, Arguments& arguments) {
  const Matched matched("range", arguments, {"start", "stop", "step"});
  const bool one = arguments.positional.size() == 1;
  const int64_t begin = one ? 0 : matched.Integer(0, 0);
  matched.Get(one ? 0 : 1);
  const int64_t end = matched.Integer(one ? 0 : 1, 0);
  const int64_t step = matched.Integer(2, 1);
  if (step == 0) throw Failure("range() arg 3 must not be zero");
  const double steps =
      (static_cast<double>(end) - static_cast<double>(begin)) / static_cast<double>(step);
  if (steps > static_cast<double>(kMaxRange)) {
    throw Failure(fmt::format("range() of more than {} numbers", kMaxRange));
  }
  auto range = std::make_shared<Sequence>();
  range->form = Sequence::Form::kRange;
  range->label = step == 1 ? fmt::format("range({}, {})", begin, end)
                           : fmt::format("range({}, {}, {})", begin, end, step);
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    range->items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  SpendBytes(range->items.size() * sizeof(Value));
  return Value(std::shared_ptr<const Sequence>(std::move(range)));
}

/// dict(mapping or pairs, name=value, ...) as entries.
Entries EntriesOf(const char* function, const Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    throw Failure(fmt::format("{}() takes at most 1 argument by position", function));
  }
  Entries entries;
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (const Dict* dict = from.dict()) {
      entries = dict->entries();
    } else {
      for (const Value& pair : Items(from)) {
        std::vector<Value> two = Items(pair);
        if (two.size() != 2) throw Failure("dict() expects pairs of key and value");
        entries.emplace_back(std::move(two[0]), std::move(two[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.keywords) entries.emplace_back(Value(name), value);
  return entries;
}

Value MakeDictOf(Interpreter& /*interpreter*/, Arguments& arguments) {
  return MakeDict(EntriesOf("dict", arguments));
}

Value MakeNamespace(Interpreter& interpreter, Arguments& arguments) {
  const auto made = interpreter.NewNamespace();
  for (const auto& [key, value] : EntriesOf("namespace", arguments)) {
    made->Set(Str(key).bytes(), value);
  }
  return Value(std::shared_ptr<Object>(made));
}

class Cycler : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {
    for (const Value& item : items_) Keeps(item);
  }
  std::string type() const override { return "Cycler"; }

  std::optional<Value> Attribute(const std::string& name) override {
    if (name == "current") return items_[at_];
    if (name != "next" && name != "reset") return std::nullopt;
    const Value self{std::shared_ptr<Object>(shared_from_this())};
    const bool resets = name == "reset";
    return Value(std::make_shared<Function>(name, self, [self, resets](Interpreter&, Arguments&) {
      auto& cycler = dynamic_cast<Cycler&>(*self.object());
      const size_t at = cycler.at_;
      cycler.at_ = resets ? 0 : (at + 1) % cycler.items_.size();
      return resets ? Value() : cycler.items_[at];
    }));
  }

 private:
  std::vector<Value> items_;
  size_t at_ = 0;
};

class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) { Keeps(separator_); }
  std::string type() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value Call(Interpreter& /*interpreter*/, Arguments& /*arguments*/) override {
    return std::exchange(used_, true) ? separator_ : Value("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

Value RaiseException(Interpreter& /*interpreter*/, Arguments& arguments) {
  const Matched matched("raise_exception", arguments, {"message"});
  throw Raised(Str(matched.Get(0)).bytes());
}

Value StrftimeNow(Interpreter& interpreter, Arguments& arguments) {
  const Matched matched("strftime_now", arguments, {"format"});
  const std::string format = matched.RequiredText(0).bytes();
  if (format.size() > 200) throw Failure("strftime_now() takes a format of at most 200 bytes");
  const std::time_t now = interpreter.now();
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[4096];
  const size_t size = std::strftime(text, sizeof text, format.c_str(), &local);
  return Value(std::string(text, size));
}

Value Refuse(Interpreter& /*interpreter*/, Arguments& /*arguments*/) {
  throw Failure("lipsum() makes random text, which has no place in a conversation");
}

}  // namespace

const std::vector<std::pair<std::string, Value>>& GlobalFunctions() {
  static const std::vector<std::pair<std::string, Value>> kFunctions = [] {
    const std::pair<const char*, Function::Body> all[] = {
        {"range", Range},
        {"dict", MakeDictOf},
        {"namespace", MakeNamespace},
        {"raise_exception", RaiseException},
        {"strftime_now", StrftimeNow},
        {"lipsum", Refuse},
        {"cycler",
         [](Interpreter&, Arguments& arguments) {
           if (arguments.positional.empty()) throw Failure("at least one item has to be provided");
           return Value(std::shared_ptr<Object>(std::make_shared<Cycler>(arguments.positional)));
         }},
        {"joiner", [](Interpreter&, Arguments& arguments) {
           const Matched matched("joiner", arguments, {"sep"});
           return Value(std::shared_ptr<Object>(std::make_shared<Joiner>(matched.GetOr(0, ", "))));
         }}};
    std::vector<std::pair<std::string, Value>> functions;
    for (const auto& [name, body] : all) {
      functions.emplace_back(name, std::shared_ptr<Object>(std::make_shared<Function>(name, body)));
    }
    return functions;
  }();
  return kFunctions;
}

}  // namespace trimtab::jinja
