// Grammar: a context-free grammar over bytes.
#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trimtab {

using ByteSet = std::bitset<256>;

/// Bytes `first` to `last`.
ByteSet ByteRange(int first, int last);

/// Rules whose bodies are regular expressions over bytes and rules. Every function that makes an
/// expression throws InputError when the grammar becomes larger than is compiled.
class Grammar {
 public:
  using Expr = int32_t;
  using Rule = int32_t;

  static constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

  struct Node {
    enum class Kind { kBytes, kSet, kSequence, kChoice, kRepeat, kRule, kIntersection };
    Kind kind = Kind::kSequence;
    std::string bytes{};        // kBytes
    ByteSet set{};              // kSet
    std::vector<Expr> parts{};  // kSequence, kChoice; the one of kRepeat; the two of kIntersection
    int64_t min = 0;            // kRepeat
    int64_t max = 0;            // kRepeat; kUnbounded if there is none
    Rule rule = 0;              // kRule
    int64_t size = 0;           // states that an automaton of it has, about
    int depth = 0;              // of the expressions in it
  };

  Expr Bytes(std::string_view bytes);
  Expr Set(const ByteSet& set);
  Expr Sequence(std::vector<Expr> parts);
  Expr Choice(std::vector<Expr> parts);
  /// `max` is kUnbounded or at least `min`. A large part becomes a rule, so that it is not copied.
  Expr Repeat(Expr part, int64_t min, int64_t max);
  Expr Optional(Expr part) { return Choice({Sequence({}), part}); }
  /// Texts that both describe. Neither may call a rule that calls itself.
  Expr Intersection(Expr a, Expr b);
  /// One of `strings`. Equal beginnings are written once.
  Expr Strings(std::vector<std::string> strings);
  /// No text at all, not even the empty one.
  Expr Never() { return Choice({}); }

  /// A rule that has no body yet; SetBody gives it one.
  Rule AddRule();
  void SetBody(Rule rule, Expr body) { bodies_[static_cast<size_t>(rule)] = body; }
  Expr Call(Rule rule);
  /// A call of the rule of this name; `body` makes its body, which may call it too, at first use.
  Expr Named(const std::string& name, const std::function<Expr()>& body);
  /// Returns a part with the texts of `part`, through a rule if it is large: for repeated use.
  Expr Shared(Expr part);

  const Node& node(Expr expr) const { return nodes_[static_cast<size_t>(expr)]; }
  int64_t rules() const { return std::ssize(bodies_); }
  /// -1 if it has none.
  Expr body(Rule rule) const { return bodies_[static_cast<size_t>(rule)]; }

 private:
  Expr Add(Node node);
  Expr StringsFrom(const std::vector<std::string>& sorted, size_t begin, size_t end, size_t at);

  std::vector<Node> nodes_;
  std::vector<Expr> bodies_;
  std::map<std::string, Rule> named_;
};

}  // namespace trimtab
