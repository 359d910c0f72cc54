#include "engine/grammar/grammar.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr size_t kMostNodes = 500'000;
constexpr int kMostDepth = 2'000;
constexpr int64_t kMostRepeats = 50'000;
constexpr int64_t kMostCopied = 64;  // states of a part that a repetition copies
constexpr int64_t kMostShared = 16;  // states of a part that is copied rather than called

int64_t Saturated(int64_t size) { return std::min<int64_t>(size, int64_t{1} << 40); }

}  // namespace

ByteSet ByteRange(int first, int last) {
  ByteSet set;
  for (int byte = first; byte <= last; ++byte) set.set(static_cast<size_t>(byte));
  return set;
}

Grammar::Expr Grammar::Add(Node node) {
  for (const Expr part : node.parts) {
    node.depth = std::max(node.depth, this->node(part).depth + 1);
  }
  if (nodes_.size() >= kMostNodes) {
    throw InputError(fmt::format("too large: more than {} parts", kMostNodes));
  }
  if (node.depth > kMostDepth) {
    throw InputError(fmt::format("nested too deeply: more than {} levels", kMostDepth));
  }
  node.size = Saturated(node.size);
  nodes_.push_back(std::move(node));
  return static_cast<Expr>(nodes_.size() - 1);
}

Grammar::Expr Grammar::Bytes(std::string_view bytes) {
  return Add({.kind = Node::Kind::kBytes, .bytes = std::string(bytes), .size = std::ssize(bytes)});
}

Grammar::Expr Grammar::Set(const ByteSet& set) {
  return Add({.kind = Node::Kind::kSet, .set = set, .size = 1});
}

Grammar::Expr Grammar::Sequence(std::vector<Expr> parts) {
  if (parts.size() == 1) return parts.front();
  int64_t size = 0;
  for (const Expr part : parts) size += node(part).size;
  return Add({.kind = Node::Kind::kSequence, .parts = std::move(parts), .size = size});
}

Grammar::Expr Grammar::Choice(std::vector<Expr> parts) {
  if (parts.size() == 1) return parts.front();
  int64_t size = 1;
  for (const Expr part : parts) size += node(part).size;
  return Add({.kind = Node::Kind::kChoice, .parts = std::move(parts), .size = size});
}

Grammar::Expr Grammar::Repeat(Expr part, int64_t min, int64_t max) {
  TRIMTAB_ASSERT(min >= 0 && max >= min, "{} to {} times", min, max);
  const int64_t copies = max == kUnbounded ? min + 1 : max;
  if (copies > kMostRepeats) {
    throw InputError(fmt::format("too large: a repetition of {}; expected at most {}",
                                 max == kUnbounded ? min : max, kMostRepeats));
  }
  if (copies > 1 && node(part).size > 1 && copies * node(part).size > kMostCopied) {
    part = Shared(part);
  }
  const int64_t size = copies * (node(part).size + 1);
  return Add({.kind = Node::Kind::kRepeat, .parts = {part}, .min = min, .max = max, .size = size});
}

Grammar::Expr Grammar::Intersection(Expr a, Expr b) {
  const int64_t size = node(a).size + node(b).size;
  return Add({.kind = Node::Kind::kIntersection, .parts = {a, b}, .size = size});
}

Grammar::Expr Grammar::Strings(std::vector<std::string> strings) {
  std::sort(strings.begin(), strings.end());
  strings.erase(std::unique(strings.begin(), strings.end()), strings.end());
  return strings.empty() ? Never() : StringsFrom(strings, 0, strings.size(), 0);
}

/// Adds the texts `begin` to `end` of `sorted`, which are equal up to byte `at`, from there on.
Grammar::Expr Grammar::StringsFrom(const std::vector<std::string>& sorted, size_t begin, size_t end,
                                   size_t at) {
  const std::string& first = sorted[begin];
  const std::string& last = sorted[end - 1];
  size_t same = at;
  while (same < std::min(first.size(), last.size()) && first[same] == last[same]) ++same;
  const Expr start = Bytes(std::string_view(first).substr(at, same - at));
  if (end - begin == 1) return start;
  std::vector<Expr> branches;
  if (first.size() == same) {
    branches.push_back(Sequence({}));
    ++begin;
  }
  while (begin < end) {
    size_t next = begin;
    while (next < end && sorted[next][same] == sorted[begin][same]) ++next;
    branches.push_back(StringsFrom(sorted, begin, next, same));
    begin = next;
  }
  return Sequence({start, Choice(std::move(branches))});
}

Grammar::Rule Grammar::AddRule() {
  bodies_.push_back(-1);
  return static_cast<Rule>(bodies_.size() - 1);
}

Grammar::Expr Grammar::Call(Rule rule) {
  return Add({.kind = Node::Kind::kRule, .rule = rule, .size = 1});
}

Grammar::Expr Grammar::Named(const std::string& name, const std::function<Expr()>& body) {
  const auto found = named_.find(name);
  if (found != named_.end()) return Call(found->second);
  const Rule rule = AddRule();
  named_.emplace(name, rule);
  SetBody(rule, body());
  return Call(rule);
}

Grammar::Expr Grammar::Shared(Expr part) {
  if (node(part).kind == Node::Kind::kRule || node(part).size <= kMostShared) return part;
  const Rule rule = AddRule();
  SetBody(rule, part);
  return Call(rule);
}

}  // namespace trimtab
