#include "tests/engine/train/message_listener.h"

#include "engine/train/trainer.h"

namespace trimtab {
namespace {

class Counter final : public Recorder {
 public:
  void BeginOp(const OpRecord&) override {}
  void BeginComm(const CommRecord& message) override { Note(message); }
  void BeginWait(const CommRecord& message) override { Note(message); }
  void End() override {}

  std::array<int64_t, kGroupKindCount> counts{};

 private:
  void Note(const CommRecord& message) { ++counts[static_cast<size_t>(message.group)]; }
};

}  // namespace

std::array<int64_t, kGroupKindCount> CountMessages(const RunConfig& run, int rank) {
  const auto device = MakeMetaDevice(1);
  const ParallelContext context =
      MakeMetaContext(run.layout, rank, run.model.kv_copies(run.layout.tp));
  Trainer trainer(run, context, *device);
  Counter counter;
  device->set_recorder(&counter);
  trainer.Step(*MakeSyntheticSource(run.model.vocab_size, /*seed=*/7), 0);
  device->set_recorder(nullptr);
  ++counter.counts[static_cast<size_t>(GroupKind::kWorld)];
  return counter.counts;
}

}  // namespace trimtab
