#include "engine/infer/replicas/replica_messages.h"

#include <cstring>
#include <type_traits>

namespace trimtab {
namespace {

class MessageWriter {
 public:
  template <typename Value>
  void Put(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  /// Their number, and each by `put`.
  template <typename List, typename PutOne>
  void PutEach(const List& list, const PutOne& put) {
    Put(std::ssize(list));
    for (const auto& each : list) put(each);
  }
  /// The same of what lies side by side.
  template <typename List>
  void PutList(const List& list) {
    using Value = typename List::value_type;
    static_assert(std::is_trivially_copyable_v<Value>);
    Put(std::ssize(list));
    bytes_.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(Value));
  }

  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : rest_(bytes) {}

  template <typename Value>
  void Get(Value& value) {
    Take(&value, sizeof(value));
  }
  template <typename List, typename GetOne>
  void GetEach(List& list, const GetOne& get) {
    int64_t count = 0;
    Get(count);
    list.resize(static_cast<size_t>(count));
    for (auto& each : list) get(each);
  }
  template <typename List>
  void GetList(List& list) {
    int64_t count = 0;
    Get(count);
    list.resize(static_cast<size_t>(count));
    Take(list.data(), list.size() * sizeof(typename List::value_type));
  }

 private:
  void Take(void* values, size_t bytes) {
    TRIMTAB_ASSERT(rest_.size() >= bytes, "a message ends {} bytes before its end",
                   bytes - rest_.size());
    if (bytes > 0) std::memcpy(values, rest_.data(), bytes);
    rest_.remove_prefix(bytes);
  }

  std::string_view rest_;
};

void PutRequest(const GenerationRequest& request, MessageWriter& to) {
  to.PutList(request.prompt);
  to.Put(request.max_tokens);
  to.Put(request.sampling);
  to.PutList(request.stop_tokens);
  to.Put(request.min_tokens);
  to.PutEach(request.logit_bias, [&to](const auto& each) {
    to.Put(each.first);
    to.Put(each.second);
  });
  to.PutList(request.allowed_tokens);
  to.PutEach(request.banned_sequences, [&to](const auto& banned) { to.PutList(banned); });
  to.Put(request.prompt_log_probabilities);
  to.Put(request.pooling);
  to.Put(request.grammar != nullptr);
  if (request.grammar != nullptr) {
    to.Put(request.grammar->kind);
    to.PutList(request.grammar->text);
  }
}

void GetRequest(MessageReader& from, GenerationRequest& request) {
  from.GetList(request.prompt);
  from.Get(request.max_tokens);
  from.Get(request.sampling);
  from.GetList(request.stop_tokens);
  from.Get(request.min_tokens);
  from.GetEach(request.logit_bias, [&from](auto& each) {
    from.Get(each.first);
    from.Get(each.second);
  });
  from.GetList(request.allowed_tokens);
  from.GetEach(request.banned_sequences, [&from](auto& banned) { from.GetList(banned); });
  from.Get(request.prompt_log_probabilities);
  from.Get(request.pooling);
  bool has_grammar = false;
  from.Get(has_grammar);
  if (has_grammar) {
    auto grammar = std::make_shared<GrammarSource>();
    from.Get(grammar->kind);
    from.GetList(grammar->text);
    request.grammar = std::move(grammar);
  }
}

void PutToken(const SampledToken& token, MessageWriter& to) {
  to.Put(token.id);
  to.Put(token.log_probability);
  to.PutEach(token.likeliest, [&to](const auto& likely) {
    to.Put(likely.first);
    to.Put(likely.second);
  });
}

void GetToken(MessageReader& from, SampledToken& token) {
  from.Get(token.id);
  from.Get(token.log_probability);
  from.GetEach(token.likeliest, [&from](auto& likely) {
    from.Get(likely.first);
    from.Get(likely.second);
  });
}

void PutMoved(const TransferredSequence& moved, MessageWriter& to) {
  PutRequest(moved.request, to);
  to.Put(moved.prompt_tokens);
  to.PutList(moved.tokens);
  to.Put(moved.computed);
  to.PutEach(moved.contents, [&to](const auto& of_rank) { to.PutList(of_rank); });
  to.Put(moved.held);
}

void GetMoved(MessageReader& from, TransferredSequence& moved) {
  GetRequest(from, moved.request);
  from.Get(moved.prompt_tokens);
  from.GetList(moved.tokens);
  from.Get(moved.computed);
  from.GetEach(moved.contents, [&from](auto& of_rank) { from.GetList(of_rank); });
  from.Get(moved.held);
}

}  // namespace

std::string Pack(const ReplicaOrders& orders) {
  MessageWriter to;
  to.PutEach(orders.added, [&to](const ReplicaOrders::Added& added) {
    to.Put(added.id);
    PutRequest(added.request, to);
  });
  to.PutEach(orders.moved, [&to](const ReplicaOrders::Moved& moved) {
    to.Put(moved.id);
    PutMoved(moved.sequence, to);
  });
  to.PutList(orders.released);
  to.PutList(orders.aborted);
  return to.Take();
}

ReplicaOrders UnpackOrders(std::string_view bytes) {
  MessageReader from(bytes);
  ReplicaOrders orders;
  from.GetEach(orders.added, [&from](ReplicaOrders::Added& added) {
    from.Get(added.id);
    GetRequest(from, added.request);
  });
  from.GetEach(orders.moved, [&from](ReplicaOrders::Moved& moved) {
    from.Get(moved.id);
    GetMoved(from, moved.sequence);
  });
  from.GetList(orders.released);
  from.GetList(orders.aborted);
  return orders;
}

std::string Pack(const ReplicaReport& report) {
  MessageWriter to;
  to.Put(report.metrics);
  to.Put(report.has_work);
  to.PutEach(report.updates, [&to](const RequestUpdate& update) {
    to.Put(update.id);
    to.Put(update.finish);
    to.PutList(update.failure);
    to.PutEach(update.tokens, [&to](const SampledToken& token) { PutToken(token, to); });
    to.PutEach(update.prompt, [&to](const SampledToken& token) { PutToken(token, to); });
    to.PutList(update.embedding);
  });
  to.PutEach(report.ready, [&to](const TransferredSequence& moved) { PutMoved(moved, to); });
  to.PutList(report.copied);
  to.Put(report.code);
  to.PutList(report.failure);
  return to.Take();
}

ReplicaReport UnpackReport(std::string_view bytes) {
  MessageReader from(bytes);
  ReplicaReport report;
  from.Get(report.metrics);
  from.Get(report.has_work);
  from.GetEach(report.updates, [&from](RequestUpdate& update) {
    from.Get(update.id);
    from.Get(update.finish);
    from.GetList(update.failure);
    from.GetEach(update.tokens, [&from](SampledToken& token) { GetToken(from, token); });
    from.GetEach(update.prompt, [&from](SampledToken& token) { GetToken(from, token); });
    from.GetList(update.embedding);
  });
  from.GetEach(report.ready, [&from](TransferredSequence& moved) { GetMoved(from, moved); });
  from.GetList(report.copied);
  from.Get(report.code);
  from.GetList(report.failure);
  return report;
}

}  // namespace trimtab
