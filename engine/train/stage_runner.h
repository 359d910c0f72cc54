// StageRunner: carries out the program of one pipeline stage.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/layers/fp8_state.h"
#include "engine/model/gpt_model.h"
#include "engine/parallel/sharded_data_parallel.h"
#include "engine/schedule/pipeline.h"

namespace trimtab {

/// What the loss of a micro batch is made with; see GptModel::Forward.
struct LossTensors {
  Tensor gradient_scale;  // [1]
  Tensor loss_sum;        // [1]
};

/// Memory for what travels between chunks, an activation or a gradient [rows, C], at the receiver.
Tensor NewMessage(const LayerContext& context, ActionKind receive);

class StageRunner {
 public:
  /// `chunks`: those of the stage, in the order of the model; they must outlive the runner.
  /// Allocates memory for the ids of as many micro batches as are in flight. `data_parallel` must
  /// be what the chunks' hooks are.
  StageRunner(std::vector<const GptModel*> chunks, StageProgram program, const LossTensors& loss,
              Fp8State* fp8, ShardedDataParallel& data_parallel);

  const StageProgram& program() const { return program_; }
  /// Micro batches of one chunk that are in flight at once, at most.
  int64_t in_flight() const { return in_flight_; }

  /// The ids that a forward pass of the program takes: of the kinds that its chunk has use for.
  /// Fill them before Run; they stay until the micro batch's backward pass is done.
  const MicroBatch& BatchOf(const Action& forward) const;

  /// The next action of the program.
  void Run(const Action& action);
  /// Waits for what is still being sent. Call at the end of the program.
  void Finish();

 private:
  struct Chunk {
    const GptModel* model = nullptr;
    // By micro batch, modulo what is in flight.
    std::vector<MicroBatch> batches{};
    std::vector<MicroBatchState> states{};
  };
  struct Message {
    Action action;
    Tensor tensor;
    CommHandle handle;
  };

  size_t SlotOf(const Action& action) const;
  void Submit(const Action& message);
  /// The data of a receive under way.
  Tensor Await(ActionKind receive, const Action& taker);
  std::vector<Message> TakeSends();
  void Compute(const Action& action);

  std::vector<Chunk> chunks_;
  StageProgram program_;
  LossTensors loss_;
  Fp8State* fp8_;
  ShardedDataParallel& data_parallel_;
  int64_t micro_batches_ = 0;
  int64_t in_flight_ = 1;
  Tensor result_;  // of the last compute action, until it is sent
  std::vector<Message> messages_;
};

}  // namespace trimtab
