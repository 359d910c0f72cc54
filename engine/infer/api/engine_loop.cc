#include "engine/infer/api/engine_loop.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <set>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/base/signals_blocked.h"

namespace trimtab {

/// News from the loop to the thread of one ticket. Guarded by Shared::mutex.
struct Ticket::Mailbox {
  std::vector<GenerationRequest> requests;  // until the engine has them
  std::vector<RequestId> ids;               // of those that the engine has taken
  bool decided = false;                     // taken or refused
  Refusal refusal;                          // when refused
  std::vector<News> news;                   // of each request
  std::set<size_t> changed;                 // those that have any
  std::condition_variable arrived;
};

/// State that the loop and its tickets share.
struct Ticket::Shared {
  struct Running {
    std::shared_ptr<Mailbox> mailbox;
    size_t request;
  };

  mutable Mutex mutex;
  std::condition_variable work;
  std::deque<std::shared_ptr<Mailbox>> submitted TRIMTAB_GUARDED_BY(mutex);
  std::vector<RequestId> aborted TRIMTAB_GUARDED_BY(mutex);
  std::map<RequestId, Running> running TRIMTAB_GUARDED_BY(mutex);
  EngineMetrics metrics TRIMTAB_GUARDED_BY(mutex);
  std::string cancelled TRIMTAB_GUARDED_BY(mutex);  // why nothing runs any more
  std::string failure TRIMTAB_GUARDED_BY(mutex);    // of the engine
  bool leaving TRIMTAB_GUARDED_BY(mutex) = false;

  /// Ends every request with `why`.
  void EndAll(const std::string& why) TRIMTAB_REQUIRES(mutex) {
    for (const auto& [id, each] : running) {
      each.mailbox->news[each.request].failure = why;
      each.mailbox->changed.insert(each.request);
      each.mailbox->arrived.notify_one();
    }
    running.clear();
    for (const auto& mailbox : submitted) {
      mailbox->refusal = {why};
      mailbox->decided = true;
      mailbox->arrived.notify_one();
    }
    submitted.clear();
  }
};

Ticket::Ticket(std::shared_ptr<Shared> loop, std::shared_ptr<Mailbox> mailbox)
    : loop_(std::move(loop)), mailbox_(std::move(mailbox)) {}

Ticket::~Ticket() {
  const MutexLock lock(loop_->mutex);
  for (const RequestId id : mailbox_->ids) {
    if (loop_->running.erase(id) > 0) loop_->aborted.push_back(id);
  }
  loop_->work.notify_one();
}

std::vector<Ticket::News> Ticket::Wait(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(loop_->mutex);
  lock.WaitUntil(mailbox_->arrived, deadline, [&] { return !mailbox_->changed.empty(); });
  std::vector<News> news;
  for (const size_t i : std::exchange(mailbox_->changed, {})) {
    news.push_back(std::exchange(mailbox_->news[i], {}));
    news.back().request = i;
  }
  return news;
}

void Ticket::Abort(size_t request) {
  const MutexLock lock(loop_->mutex);
  const RequestId id = mailbox_->ids.at(request);
  if (loop_->running.erase(id) == 0) return;
  loop_->aborted.push_back(id);
  loop_->work.notify_one();
}

EngineLoop::EngineLoop(Engine& engine)
    : engine_(engine), shared_(std::make_shared<Ticket::Shared>()) {
  shared_->metrics = engine.metrics();
  thread_ = std::thread([this] {
    const SignalsBlocked blocked;
    Run();
  });
}

EngineLoop::~EngineLoop() {
  Cancel("the server is stopping");
  {
    const MutexLock lock(shared_->mutex);
    shared_->leaving = true;
    shared_->work.notify_one();
  }
  thread_.join();
}

std::variant<std::unique_ptr<Ticket>, Refusal> EngineLoop::Submit(
    std::vector<GenerationRequest> requests) {
  auto mailbox = std::make_shared<Ticket::Mailbox>();
  mailbox->news.resize(requests.size());
  mailbox->requests = std::move(requests);
  MutexLock lock(shared_->mutex);
  if (!shared_->failure.empty()) return Refusal{shared_->failure};
  if (!shared_->cancelled.empty()) return Refusal{shared_->cancelled};
  shared_->submitted.push_back(mailbox);
  shared_->work.notify_one();
  lock.Wait(mailbox->arrived, [&] { return mailbox->decided; });
  if (!mailbox->refusal.reason.empty()) return mailbox->refusal;
  return std::unique_ptr<Ticket>(new Ticket(shared_, std::move(mailbox)));
}

void EngineLoop::Cancel(const std::string& why) {
  const MutexLock lock(shared_->mutex);
  if (!shared_->cancelled.empty()) return;
  shared_->cancelled = why;
  for (const auto& [id, mailbox] : shared_->running) shared_->aborted.push_back(id);
  shared_->EndAll(why);
  shared_->work.notify_one();
}

EngineMetrics EngineLoop::metrics() const {
  const MutexLock lock(shared_->mutex);
  return shared_->metrics;
}

std::string EngineLoop::failure() const {
  const MutexLock lock(shared_->mutex);
  return shared_->failure;
}

void EngineLoop::Take(Ticket::Mailbox& mailbox) {
  for (GenerationRequest& request : mailbox.requests) {
    auto outcome = engine_.AddRequest(std::move(request));
    if (const auto* id = std::get_if<RequestId>(&outcome)) {
      mailbox.ids.push_back(*id);
      continue;
    }
    mailbox.refusal = std::get<Refusal>(std::move(outcome));
    for (const RequestId id : std::exchange(mailbox.ids, {})) engine_.Abort(id);
    break;
  }
  mailbox.requests.clear();
}

bool EngineLoop::TakeSubmitted(Mailboxes& told) {
  Ticket::Shared& shared = *shared_;
  const MutexLock lock(shared.mutex);
  if (shared.leaving) return false;
  for (const RequestId id : std::exchange(shared.aborted, {})) engine_.Abort(id);
  // A ticket stays in the list while the engine takes it: where that throws, EndAll refuses it.
  for (; !shared.submitted.empty(); shared.submitted.pop_front()) {
    const std::shared_ptr<Ticket::Mailbox>& mailbox = shared.submitted.front();
    Take(*mailbox);
    for (size_t i = 0; i < mailbox->ids.size(); ++i) {
      shared.running[mailbox->ids[i]] = {mailbox, i};
    }
    mailbox->decided = true;
    told.push_back(mailbox);
  }
  shared.metrics = engine_.metrics();
  return true;
}

void EngineLoop::Deliver(std::vector<RequestUpdate> updates, Mailboxes& told) {
  Ticket::Shared& shared = *shared_;
  const MutexLock lock(shared.mutex);
  for (RequestUpdate& update : updates) {
    const auto found = shared.running.find(update.id);
    if (found == shared.running.end()) continue;  // aborted meanwhile
    const auto [mailbox, request] = found->second;
    Ticket::News& news = mailbox->news[request];
    std::ranges::move(update.tokens, std::back_inserter(news.tokens));
    std::ranges::move(update.prompt, std::back_inserter(news.prompt));
    if (!update.embedding.empty()) news.embedding = std::move(update.embedding);
    news.failure = std::move(update.failure);
    if (news.failure.empty()) news.finish = update.finish;
    mailbox->changed.insert(request);
    if (update.finish != FinishReason::kNone) shared.running.erase(found);
    told.push_back(mailbox);
  }
}

void EngineLoop::AwaitWork() {
  Ticket::Shared& shared = *shared_;
  MutexLock lock(shared.mutex);
  lock.Wait(shared.work, [&]() TRIMTAB_REQUIRES(shared.mutex) {
    return shared.leaving || !shared.submitted.empty() || !shared.aborted.empty();
  });
}

void EngineLoop::Run() {
  Mailboxes told;
  const auto wake = [&told] {
    for (const auto& mailbox : std::exchange(told, {})) mailbox->arrived.notify_one();
  };
  try {
    while (TakeSubmitted(told)) {
      wake();
      if (engine_.HasWork()) {
        Deliver(engine_.Step(), told);
      } else {
        AwaitWork();
      }
    }
  } catch (const std::exception& error) {
    const MutexLock lock(shared_->mutex);
    shared_->failure = std::string("the engine failed: ") + error.what();
    shared_->EndAll(shared_->failure);
  }
  wake();
}

}  // namespace trimtab
