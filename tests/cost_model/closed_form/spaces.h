// Small models and every layout of them, for tests that hold for all layouts.
#pragma once

#include <string>
#include <vector>

#include "cost_model/hardware/cluster.h"
#include "cost_model/hardware/numerics.h"
#include "engine/config/rules/rules.h"
#include "engine/config/run/run_config.h"

namespace trimtab {

/// GPT-2 family, with sizes that are no powers of two.
inline ModelConfig TinyGpt2() {
  ModelConfig model;
  model.name = "tiny-gpt2";
  model.vocab_size = 101;
  model.hidden_size = 24;
  model.num_layers = 3;
  model.num_heads = 4;
  model.num_kv_heads = 4;
  model.ffn_hidden_size = 52;
  model.max_sequence_length = 20;
  model.make_vocab_size_divisible_by = 6;
  return model;
}

/// Llama family: grouped queries, SwiGLU, RMSNorm, rotary positions, untied, no biases.
inline ModelConfig TinyLlama() {
  ModelConfig model = TinyGpt2();
  model.name = "tiny-llama";
  model.vocab_size = 77;
  model.hidden_size = 48;
  model.num_layers = 2;
  model.num_heads = 8;
  model.num_kv_heads = 4;
  model.ffn_hidden_size = 36;
  model.norm = NormKind::kRmsNorm;
  model.activation = ActivationKind::kSwiGlu;
  model.position = PositionKind::kRope;
  model.bias = false;
  model.tied_embeddings = false;
  return model;
}

/// As TinyLlama, with every size a multiple of 16 on up to two tensor-parallel ranks: fp8 runs it.
inline ModelConfig TinyFp8Llama() {
  ModelConfig model = TinyLlama();
  model.name = "tiny-fp8-llama";
  model.hidden_size = 64;
  model.num_layers = 3;
  model.ffn_hidden_size = 96;
  return model;
}

/// Every legal run of `model` over dp x tp x sequence parallel x micro batch x recompute x zero on
/// at most `most_ranks` ranks.
inline std::vector<RunConfig> EveryRun(const ModelConfig& model, int64_t global_batch,
                                       int64_t sequence, int64_t most_ranks) {
  std::vector<RunConfig> runs;
  RunConfig run;
  run.model = model;
  run.global_batch = global_batch;
  run.sequence_length = sequence;
  run.steps = 10;
  run.threads_per_rank = 1;
  for (const int64_t dp : {1, 2, 3, 4}) {
    for (const int64_t tp : {1, 2, 4}) {
      if (dp * tp > most_ranks) continue;
      for (const bool sequence_parallel : {false, true}) {
        if (sequence_parallel && tp == 1) continue;
        for (int64_t micro_batch = 1; micro_batch * dp <= global_batch; ++micro_batch) {
          for (const char* recompute :
               {"none", "full", "full:block:1", "full:uniform:2", "selective:core_attn+mlp_act",
                "selective:layernorm+mlp+logits"}) {
            for (const int64_t zero : {0, 1, 2, 3}) {
              run.layout = {};
              run.layout.dp = dp;
              run.layout.tp = tp;
              run.layout.sequence_parallel = sequence_parallel;
              run.layout.micro_batch = micro_batch;
              run.layout.recompute = ParseRecompute(recompute, "recompute");
              run.layout.zero = zero;
              if (FirstBrokenRule(run) == nullptr) runs.push_back(run);
            }
          }
        }
      }
    }
  }
  return runs;
}

/// Every legal run of `model` whose sequences are cut over 2, 3 or 5 ranks, by either way to the
/// keys of others.
inline std::vector<RunConfig> EveryContextParallelRun(const ModelConfig& model, int64_t sequence,
                                                      int64_t most_ranks) {
  std::vector<RunConfig> runs;
  for (RunConfig run : EveryRun(model, 4, sequence, most_ranks)) {
    const bool sharded = run.layout.dp > 1;
    for (const int64_t cp : {2, 3, 5}) {
      run.layout.cp = cp;
      if (run.layout.world_size() > most_ranks) continue;
      for (const CpCommType messages : {CpCommType::kP2p, CpCommType::kAllGather}) {
        run.layout.cp_comm_type = messages;
        // Without data parallelism EveryRun shards nothing.
        for (const int64_t zero : {0, 1, 2, 3}) {
          if (!sharded) run.layout.zero = zero;
          if (FirstBrokenRule(run) == nullptr) runs.push_back(run);
          if (sharded) break;
        }
      }
    }
  }
  return runs;
}

/// Every legal pipeline of `model` over schedules x pp x vp x dp x tp x sequence parallel x
/// recompute x zero, even and uneven, with 1 to 3 micro batches a stage; some over cp too.
inline std::vector<RunConfig> EveryPipeline(const ModelConfig& model, int64_t sequence,
                                            int64_t most_ranks) {
  std::vector<RunConfig> runs;
  for (RunConfig run : EveryRun(model, 12, sequence, most_ranks)) {
    for (const char* pipeline :
         {"pp=2", "pp=3", "pp=2,schedule=gpipe", "pp=2,schedule=zero-bubble",
          "pp=3,schedule=zero-bubble", "pp=2,vp=2,schedule=interleaved-1f1b", "pp=2,stages=1+2",
          "pp=2,reshard_after_forward=0", "pp=2,schedule=zero-bubble,reshard_after_forward=0",
          "pp=2,cp=2", "pp=2,cp=2,cp_comm_type=all_gather,schedule=zero-bubble"}) {
      const ParallelConfig keys = ParseLayout(pipeline, 0);
      run.layout.cp = keys.cp;
      run.layout.cp_comm_type = keys.cp_comm_type;
      run.layout.pp = keys.pp;
      run.layout.vp = keys.vp;
      run.layout.schedule = keys.schedule;
      run.layout.stages = keys.stages;
      run.layout.reshard_after_forward = keys.reshard_after_forward;
      const int64_t samples = run.layout.micro_batch * run.layout.dp;
      if (run.layout.world_size() > most_ranks || run.layout.micro_batch > 2) continue;
      for (int64_t micro_batches = keys.pp; micro_batches <= 3 * keys.pp;
           micro_batches += keys.pp) {
        run.global_batch = samples * micro_batches;
        if (FirstBrokenRule(run) == nullptr) runs.push_back(run);
      }
    }
  }
  return runs;
}

/// Legal runs of `model` in each of `layouts`, with one and with three micro batches.
inline std::vector<RunConfig> RunsIn(const std::vector<std::string>& layouts,
                                     const ModelConfig& model, int64_t sequence) {
  std::vector<RunConfig> runs;
  for (const std::string& layout : layouts) {
    for (const int64_t micro_batches : {1, 3}) {
      RunConfig run;
      run.model = model;
      run.layout = ParseLayout(layout, 0);
      run.global_batch = micro_batches * run.layout.micro_batch * run.layout.dp;
      run.sequence_length = sequence;
      run.steps = 10;
      run.threads_per_rank = 1;
      if (FirstBrokenRule(run) == nullptr) runs.push_back(run);
    }
  }
  return runs;
}

/// Settings of sharded data parallelism that EveryRun leaves at their defaults.
inline std::vector<std::string> ShardingSettings() {
  std::vector<std::string> layouts;
  for (const char* setting :
       {"zero=0,overlap_grad_reduce=0", "zero=1,overlap_grad_reduce=0",
        "zero=1,overlap_param_gather=1", "zero=1,shard=2", "zero=2,overlap_grad_reduce=0",
        "zero=2,shard=2,overlap_param_gather=1", "zero=3,shard=2",
        "zero=3,shard=2,overlap_grad_reduce=0", "zero=3,reshard_after_forward=0,shard=2"}) {
    for (const char* ranks :
         {"dp=4,mbs=1", "dp=2,mbs=2", "tp=2,sp=1,dp=4,mbs=1,recompute=full:block:1",
          "pp=2,dp=4,mbs=1", "pp=2,dp=4,mbs=1,schedule=zero-bubble"}) {
      layouts.push_back(std::string(ranks) + "," + setting);
    }
  }
  return layouts;
}

/// Tensor parallelism whose messages overlap with products.
inline std::vector<std::string> TpOverlapSettings() {
  std::vector<std::string> layouts;
  for (const char* chunks : {"tp_overlap_chunks=2", "tp_overlap_chunks=5"}) {
    for (const char* ranks :
         {"tp=2,mbs=2", "tp=2,sp=1,mbs=2", "tp=4,sp=1,mbs=2,recompute=full:block:1",
          "tp=2,sp=1,mbs=1,recompute=selective:layernorm+mlp+logits", "tp=2,sp=1,dp=2,mbs=1,zero=3",
          "pp=2,tp=2,sp=1,mbs=1,schedule=zero-bubble", "pp=2,tp=2,mbs=1,schedule=zero-bubble",
          "pp=2,tp=2,sp=1,mbs=2"}) {
      layouts.push_back(std::string(ranks) + "," + chunks);
    }
  }
  return layouts;
}

/// Every legal run under `precision` and every optimizer state.
inline std::vector<RunConfig> EveryRunIn(Precision precision, DeviceKind device) {
  std::vector<RunConfig> runs;
  for (const std::string& state : EveryOptimizerState(precision)) {
    for (RunConfig run : EveryRun(TinyFp8Llama(), 4, 16, 8)) {
      run.layout.numerics.precision = precision;
      run.device = device;
      SetOptimizerState(state, run.layout.numerics);
      if (FirstBrokenRule(run) == nullptr) runs.push_back(run);
    }
  }
  return runs;
}

/// Priced without tables.
inline Cluster GenericCpu() { return LocalMachine(BuiltinProfile("cpu")); }

inline std::string Describe(const RunConfig& run) {
  return run.model.name + " gbs=" + std::to_string(run.global_batch) +
         " seq=" + std::to_string(run.sequence_length) + " " + ToString(run.layout);
}

}  // namespace trimtab
