#include "engine/infer/replica_messages.h"

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
  template <typename List>
  void PutList(const List& list) {
    PutEach(list, [this](const auto& each) { Put(each); });
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
    TRIMTAB_ASSERT(rest_.size() >= sizeof(value), "a message ends {} bytes before its end",
                   sizeof(value) - rest_.size());
    std::memcpy(&value, rest_.data(), sizeof(value));
    rest_.remove_prefix(sizeof(value));
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
    GetEach(list, [this](auto& each) { Get(each); });
  }

 private:
  std::string_view rest_;
};

}  // namespace

std::string Pack(const ReplicaOrders& orders) {
  MessageWriter to;
  to.PutList(orders.aborted);
  to.PutEach(orders.added, [&to](const ReplicaOrders::Added& added) {
    to.Put(added.id);
    to.PutList(added.request.prompt);
    to.Put(added.request.max_tokens);
    to.Put(added.request.sampling);
    to.PutList(added.request.stop_tokens);
  });
  return to.Take();
}

ReplicaOrders UnpackOrders(std::string_view bytes) {
  MessageReader from(bytes);
  ReplicaOrders orders;
  from.GetList(orders.aborted);
  from.GetEach(orders.added, [&from](ReplicaOrders::Added& added) {
    from.Get(added.id);
    from.GetList(added.request.prompt);
    from.Get(added.request.max_tokens);
    from.Get(added.request.sampling);
    from.GetList(added.request.stop_tokens);
  });
  return orders;
}

std::string Pack(const ReplicaReport& report) {
  MessageWriter to;
  to.Put(report.metrics);
  to.PutEach(report.updates, [&to](const RequestUpdate& update) {
    to.Put(update.id);
    to.Put(update.finish);
    to.PutEach(update.tokens, [&to](const SampledToken& token) {
      to.Put(token.id);
      to.Put(token.log_probability);
      to.PutEach(token.likeliest, [&to](const auto& likely) {
        to.Put(likely.first);
        to.Put(likely.second);
      });
    });
  });
  to.Put(report.code);
  to.PutList(report.failure);
  return to.Take();
}

ReplicaReport UnpackReport(std::string_view bytes) {
  MessageReader from(bytes);
  ReplicaReport report;
  from.Get(report.metrics);
  from.GetEach(report.updates, [&from](RequestUpdate& update) {
    from.Get(update.id);
    from.Get(update.finish);
    from.GetEach(update.tokens, [&from](SampledToken& token) {
      from.Get(token.id);
      from.Get(token.log_probability);
      from.GetEach(token.likeliest, [&from](auto& likely) {
        from.Get(likely.first);
        from.Get(likely.second);
      });
    });
  });
  from.Get(report.code);
  from.GetList(report.failure);
  return report;
}

}  // namespace trimtab
