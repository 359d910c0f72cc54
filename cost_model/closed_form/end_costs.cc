#include "cost_model/closed_form/end_costs.h"

#include <algorithm>
#include <span>
#include <vector>

namespace trimtab {
namespace {

/// All asynchronous messages of a reduction but the last, which has no pass left to run beside; and
/// no more than data-parallel ranks are waited for, where messages of several groups of them run
/// beside each other.
double HideableSeconds(const Recording& reduction, const PieceCost& cost,
                       const ParallelConfig& layout, const Pricer& pricer) {
  if (!pricer.overlaps()) return 0;
  double sum = 0;
  double last = 0;
  double waited_s = 0;
  for (const RecordedEvent& event : reduction.events) {
    const auto* message = std::get_if<CommRecord>(&event);
    if (message == nullptr || !message->asynchronous()) continue;
    last = pricer.Seconds(*message, StrideOf(message->group, layout));
    sum += last;
  }
  for (size_t group = 0; group < cost.message_s.size(); ++group) {
    if (IsOfDataRanks(static_cast<GroupKind>(group))) waited_s += cost.message_s[group];
  }
  return std::min(sum - last, waited_s);
}

/// Asynchronous messages that the recording does not wait for.
std::vector<CommRecord> UnderWay(const Recording& recording) {
  std::vector<CommRecord> messages;
  for (const RecordedEvent& event : recording.events) {
    if (const auto* message = std::get_if<CommRecord>(&event)) {
      if (message->asynchronous()) messages.push_back(*message);
    } else if (const auto* wait = std::get_if<WaitRecord>(&event)) {
      std::erase_if(messages, [&](const CommRecord& each) { return each.id == wait->message.id; });
    }
  }
  return messages;
}

}  // namespace

EndCosts EndOf(const UpdateRecording& recording, const ParallelConfig& layout,
               const Pricer& pricer) {
  PricedOps ops(pricer);
  EndCosts end = {.update = PriceEach(std::span(&recording.reduction, 1), layout, ops).front(),
                  .held = recording.held};
  end.hideable_s = HideableSeconds(recording.reduction, end.update, layout, pricer);
  end.update.Append(PriceEach(std::span(&recording.update, 1), layout, ops).front());
  if (!pricer.overlaps()) return end;
  for (const CommRecord& message : UnderWay(recording.update)) {
    const double seconds = pricer.Seconds(message, StrideOf(message.group, layout));
    (end.next_first_s == 0 ? end.next_first_s : end.next_rest_s) += seconds;
  }
  return end;
}

}  // namespace trimtab
