#include "engine/train/stage_runner.h"

#include <algorithm>
#include <utility>

namespace trimtab {

Tensor NewMessage(const LayerContext& context, ActionKind receive) {
  const bool activation = receive == ActionKind::kRecvActivation;
  return context.New({context.rows(), context.model.hidden_size},
                     activation ? MemoryTag::kActivations : MemoryTag::kCommunication);
}

StageRunner::StageRunner(std::vector<const GptModel*> chunks, StageProgram program,
                         const LossTensors& loss, Fp8State* fp8, ShardedDataParallel& data_parallel)
    : program_(std::move(program)), loss_(loss), fp8_(fp8), data_parallel_(data_parallel) {
  for (const Action& action : program_) {
    micro_batches_ = std::max<int64_t>(micro_batches_, action.micro_batch + 1);
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    const int64_t in_flight = MicroBatchesInFlight(program_, static_cast<int64_t>(i));
    in_flight_ = std::max(in_flight_, in_flight);
    const GptModel& model = *chunks[i];
    Chunk& chunk = chunks_.emplace_back();
    chunk.model = &model;
    chunk.states.resize(static_cast<size_t>(in_flight));
    chunk.batches = NewBatches(model.context(), model.chunk(), in_flight);
  }
}

size_t StageRunner::SlotOf(const Action& action) const {
  const Chunk& chunk = chunks_[static_cast<size_t>(action.chunk)];
  return static_cast<size_t>(action.micro_batch) % chunk.states.size();
}

const MicroBatch& StageRunner::BatchOf(const Action& forward) const {
  return chunks_[static_cast<size_t>(forward.chunk)].batches[SlotOf(forward)];
}

void StageRunner::Run(const Action& action) {
  if (!IsCompute(action.kind)) return Submit(action);
  // What was sent before this action goes out beside it.
  std::vector<Message> sends = TakeSends();
  Compute(action);
  for (Message& send : sends) send.handle.Wait();
}

void StageRunner::Finish() {
  for (Message& send : TakeSends()) send.handle.Wait();
}

void StageRunner::Submit(const Action& message) {
  Communicator& stages = *chunks_.front().model->context().parallel.pp;
  const bool send = IsSend(message.kind);
  Tensor tensor = send ? std::exchange(result_, {})
                       : NewMessage(chunks_.front().model->context(), message.kind);
  CommHandle handle =
      send ? stages.SendAsync(tensor, message.peer) : stages.RecvAsync(tensor, message.peer);
  messages_.push_back({message, std::move(tensor), std::move(handle)});
}

Tensor StageRunner::Await(ActionKind receive, const Action& taker) {
  const auto found = std::find_if(messages_.begin(), messages_.end(), [&](const Message& message) {
    return message.action.kind == receive && message.action.chunk == taker.chunk &&
           message.action.micro_batch == taker.micro_batch;
  });
  TRIMTAB_ASSERT(found != messages_.end(), "{} of micro batch {} was not submitted", Name(receive),
                 taker.micro_batch);
  Message message = std::move(*found);
  messages_.erase(found);
  message.handle.Wait();
  return std::move(message.tensor);
}

std::vector<StageRunner::Message> StageRunner::TakeSends() {
  const auto first =
      std::stable_partition(messages_.begin(), messages_.end(),
                            [](const Message& message) { return !IsSend(message.action.kind); });
  std::vector<Message> sends(std::make_move_iterator(first),
                             std::make_move_iterator(messages_.end()));
  messages_.erase(first, messages_.end());
  return sends;
}

void StageRunner::Compute(const Action& action) {
  Chunk& chunk = chunks_[static_cast<size_t>(action.chunk)];
  const GptModel& model = *chunk.model;
  MicroBatchState& state = chunk.states[SlotOf(action)];
  if (fp8_ != nullptr) fp8_->EnterMicroBatch(action.micro_batch);
  const auto gradient = [&] {
    return model.chunk().head ? Tensor() : Await(ActionKind::kRecvGradient, action);
  };
  if (action.kind == ActionKind::kForward) {
    MicroBatch batch = chunk.batches[SlotOf(action)];
    if (!model.chunk().embedding) batch.hidden = Await(ActionKind::kRecvActivation, action);
    result_ = model.Forward(batch, loss_.gradient_scale, loss_.loss_sum, state);
    return;
  }
  data_parallel_.StartBackward(action.micro_batch == 0, action.micro_batch + 1 == micro_batches_);
  const bool accumulate = data_parallel_.accumulates();
  if (action.kind == ActionKind::kBackward) {
    result_ = model.Backward(state, gradient(), accumulate);
  } else if (action.kind == ActionKind::kBackwardInput) {
    result_ = model.BackwardInput(state, gradient(), accumulate);
  } else {
    model.BackwardWeight(state, accumulate);
  }
  data_parallel_.FinishBackward();
}

}  // namespace trimtab
