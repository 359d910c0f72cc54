// NaiveRecogniser: what a grammar says of a text, straight from its expressions, by fixed points.
// Shares nothing with the automata that it checks. For short texts.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "engine/grammar/grammar.h"

namespace trimtab {

/// Knows every expression but intersections.
class NaiveRecogniser {
 public:
  NaiveRecogniser(const Grammar& grammar, Grammar::Rule root, std::string text)
      : grammar_(grammar), root_(root), text_(std::move(text)) {
    size_t before = 0;
    do {
      before = found_;
      for (Grammar::Rule rule = 0; rule < grammar.rules(); ++rule) {
        if (grammar.body(rule) < 0) continue;
        for (size_t i = 0; i <= text_.size(); ++i) {
          for (const size_t end : Ends(grammar.body(rule), i)) {
            found_ += ends_[{rule, i}].insert(end).second ? 1 : 0;
          }
          if (Begins(grammar.body(rule), i)) found_ += begins_.insert({rule, i}).second ? 1 : 0;
        }
        if (HasText(grammar.body(rule))) found_ += has_text_.insert(rule).second ? 1 : 0;
      }
    } while (found_ != before);
  }

  /// Returns true if the text is one of the grammar.
  bool IsText() { return ends_[{root_, 0}].contains(text_.size()); }
  /// Returns true if it is the beginning of one.
  bool IsBeginning() { return begins_.contains({root_, 0}) || IsText(); }

 private:
  using Kind = Grammar::Node::Kind;
  using Expr = Grammar::Expr;

  static constexpr int64_t kMany = 12;  // repetitions beyond the longest text

  std::set<size_t> Ends(Expr expr, size_t from) {
    const Grammar::Node& node = grammar_.node(expr);
    std::set<size_t> ends;
    switch (node.kind) {
      case Kind::kBytes:
        if (text_.compare(from, node.bytes.size(), node.bytes) == 0) {
          ends.insert(from + node.bytes.size());
        }
        return ends;
      case Kind::kSet:
        if (from < text_.size() && node.set.test(static_cast<unsigned char>(text_[from]))) {
          ends.insert(from + 1);
        }
        return ends;
      case Kind::kSequence:
        ends = {from};
        for (const Expr part : node.parts) ends = After(part, ends);
        return ends;
      case Kind::kChoice:
        for (const Expr part : node.parts) ends.merge(Ends(part, from));
        return ends;
      case Kind::kRepeat: {
        std::set<size_t> reached = {from};
        for (int64_t i = 0; i <= std::min(node.max, node.min + kMany); ++i) {
          if (i >= node.min) ends.insert(reached.begin(), reached.end());
          reached = After(node.parts[0], reached);
        }
        return ends;
      }
      case Kind::kRule:
        return ends_[{node.rule, from}];
      case Kind::kIntersection:
        break;
    }
    return ends;
  }

  std::set<size_t> After(Expr part, const std::set<size_t>& from) {
    std::set<size_t> ends;
    for (const size_t each : from) ends.merge(Ends(part, each));
    return ends;
  }

  /// Returns true if the text from `from` on begins one of `expr`.
  bool Begins(Expr expr, size_t from) {
    const Grammar::Node& node = grammar_.node(expr);
    switch (node.kind) {
      case Kind::kBytes:
        return node.bytes.compare(0, text_.size() - from, text_, from) == 0;
      case Kind::kSet:
        if (from == text_.size()) return node.set.any();
        return from + 1 == text_.size() && Ends(expr, from).contains(from + 1);
      case Kind::kSequence: {
        for (const Expr part : node.parts) {
          if (!HasText(part)) return false;
        }
        std::set<size_t> reached = {from};
        for (const Expr part : node.parts) {
          for (const size_t each : reached) {
            if (Begins(part, each)) return true;
          }
          reached = After(part, reached);
        }
        return reached.contains(text_.size());
      }
      case Kind::kChoice:
        for (const Expr part : node.parts) {
          if (Begins(part, from)) return true;
        }
        return false;
      case Kind::kRepeat: {
        if (node.min > 0 && !HasText(node.parts[0])) return false;
        std::set<size_t> reached = {from};
        for (int64_t i = 0; i < std::min(node.max, node.min + kMany); ++i) {
          for (const size_t each : reached) {
            if (Begins(node.parts[0], each)) return true;
          }
          reached = After(node.parts[0], reached);
        }
        return Ends(expr, from).contains(text_.size());
      }
      case Kind::kRule:
        return begins_.contains({node.rule, from});
      case Kind::kIntersection:
        break;
    }
    return false;
  }

  bool HasText(Expr expr) {
    const Grammar::Node& node = grammar_.node(expr);
    if (node.kind == Kind::kSet) return node.set.any();
    if (node.kind == Kind::kRule) return has_text_.contains(node.rule);
    if (node.kind == Kind::kRepeat) return node.min == 0 || HasText(node.parts[0]);
    for (const Expr part : node.parts) {
      const bool has = HasText(part);
      if (node.kind == Kind::kChoice ? has : !has) return has;
    }
    return node.kind != Kind::kChoice;
  }

  const Grammar& grammar_;
  Grammar::Rule root_;
  std::string text_;
  std::map<std::pair<Grammar::Rule, size_t>, std::set<size_t>> ends_;
  std::set<std::pair<Grammar::Rule, size_t>> begins_;
  std::set<Grammar::Rule> has_text_;
  size_t found_ = 0;
};

}  // namespace trimtab
