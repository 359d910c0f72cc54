// One process of a run that goes wrong in the way its argument says. Prints one line, "rank R: what
// it was told", and ends as a run of the trimtab command does. Started by mpi_test.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "engine/comm/mpi/mpi_context.h"

namespace trimtab {
namespace {

Tensor Floats(Device& device, int64_t count) {
  return Tensor::Empty(device, {count}, DType::kF32, MemoryTag::kCommunication);
}

void Say(int rank, const std::string& what) {
  // One write, so that the lines of two processes do not mix.
  const std::string line = fmt::format("rank {}: {}\n", rank, what);
  [[maybe_unused]] const ssize_t ignored = ::write(STDOUT_FILENO, line.data(), line.size());
}

using Scenario = std::function<void(ParallelContext& context, Device& device)>;

const std::map<std::string, Scenario>& Scenarios() {
  static const std::map<std::string, Scenario> scenarios = {
      {"sizes",
       [](ParallelContext& context, Device& device) {
         Tensor tensor = Floats(device, context.rank == 0 ? 8 : 9);
         context.world->AllReduce(tensor);
       }},
      {"kinds",
       [](ParallelContext& context, Device& device) {
         Tensor tensor = Floats(device, 8);
         if (context.rank == 1) return context.world->Broadcast(tensor, 0);
         context.world->AllReduce(tensor);
       }},
      {"two_sends",
       [](ParallelContext& context, Device& device) {
         context.world->Send(Floats(device, 8), 1 - context.rank);
       }},
      {"message_against_collective",
       [](ParallelContext& context, Device& device) {
         Tensor tensor = Floats(device, 8);
         if (context.rank == 0) return context.world->Send(tensor, 1);
         context.world->AllReduce(tensor);
       }},
      {"asynchronous_sizes",
       [](ParallelContext& context, Device& device) {
         Tensor first = Floats(device, 4);
         Tensor second = Floats(device, context.rank == 0 ? 8 : 9);
         for (Tensor* tensor : {&first, &second}) {
           CommHandle handle = context.rank == 0 ? context.world->SendAsync(*tensor, 1)
                                                 : context.world->RecvAsync(*tensor, 0);
           handle.Wait();
         }
         context.world->Barrier();
       }},
      {"receives_too_much",
       [](ParallelContext& context, Device& device) {
         Tensor tensor = Floats(device, 8);
         if (context.rank == 1) return context.world->Send(tensor, 0);
         context.world->Recv(tensor, 1);
         context.world->Recv(tensor, 1);
       }},
      {"throws_with_messages_under_way",
       [](ParallelContext& context, Device& device) {
         Tensor sent = Floats(device, 1 << 20);
         Tensor received = Floats(device, 1 << 20);
         CommHandle handles[] = {context.world->SendAsync(sent, 1 - context.rank),
                                 context.world->RecvAsync(received, 1 - context.rank),
                                 context.world->RecvAsync(sent, 1 - context.rank)};
         if (context.rank == 1) throw StorageError("disk full");
         for (CommHandle& handle : handles) handle.Wait();
       }},
      {"groups", [](ParallelContext& context,
                    Device&) { (context.rank == 0 ? context.world : context.dp)->Barrier(); }},
      {"finishes_early",
       [](ParallelContext& context, Device& device) {
         Tensor tensor = Floats(device, 8);
         if (context.rank == 0) context.world->AllReduce(tensor);
       }},
      {"throws",
       [](ParallelContext& context, Device&) {
         if (context.rank == 1) throw StorageError("disk full");
         context.world->Barrier();
       }},
      {"aborts",
       [](ParallelContext& context, Device&) {
         if (context.rank == 1) context.dp->Abort("no more paper");
         context.world->Barrier();
       }},
      {"out_of_memory",
       [](ParallelContext& context, Device& device) {
         device.memory().set_limit_bytes(context.rank == 1 ? 100 : 0);
         Floats(device, 1000);
         context.world->Barrier();
       }},
      {"hangs",
       [](ParallelContext& context, Device&) {
         if (context.rank == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
         context.world->Barrier();
       }},
      {"hangs_at_the_end_of_a_chain",
       [](ParallelContext& context, Device& device) {
         Tensor tensor = Floats(device, 8);
         if (context.rank < 2) return context.world->Recv(tensor, context.rank + 1);
         std::this_thread::sleep_for(std::chrono::seconds(60));
       }},
      {"computes_for_long",
       [](ParallelContext& context, Device&) {
         if (context.rank == 1) std::this_thread::sleep_for(std::chrono::seconds(6));
         context.world->Barrier();
       }},
      {"waits_without_limit",
       [](ParallelContext& context, Device&) {
         MpiWorld::OfProcess().set_unlimited(true);
         if (context.rank == 0) std::this_thread::sleep_for(std::chrono::seconds(4));
         context.world->Barrier();
         MpiWorld::OfProcess().set_unlimited(false);
         context.world->Barrier();
       }},
      {"requests",
       [](ParallelContext& context, Device& device) {
         const MpiWorld& world = MpiWorld::OfProcess();
         Tensor one = Floats(device, 8);
         Tensor all = Floats(device, 8 * context.world->size());
         const auto print = [&](const char* what, const std::function<void()>& call) {
           const int64_t before = world.requests(GroupKind::kWorld);
           call();
           Say(context.rank,
               fmt::format("{} {}", what, world.requests(GroupKind::kWorld) - before));
         };
         print("barrier", [&] { context.world->Barrier(); });
         print("all_reduce", [&] { context.world->AllReduce(one); });
         print("all_gather", [&] { context.world->AllGather(one, all); });
         print("broadcast", [&] { context.world->Broadcast(all, 0); });
       }},
      {"works",
       [](ParallelContext& context, Device& device) {
         Tensor tensor = Floats(device, 8);
         context.world->AllReduce(tensor);
         context.dp->AllReduce(tensor);
         context.tp->AllReduce(tensor);
         context.host->Barrier();
       }},
  };
  return scenarios;
}

/// "how:rank:others": rank `rank` goes away as `how` says, while the others wait or work.
Scenario LossOf(const std::string& name) {
  const size_t first = name.find(':');
  const size_t second = name.find(':', first + 1);
  if (second == std::string::npos) return nullptr;
  const std::string how = name.substr(0, first);
  const int victim = std::stoi(name.substr(first + 1, second - first - 1));
  const bool others_work = name.substr(second + 1) == "work";
  return [=](ParallelContext& context, Device&) {
    context.world->Barrier();
    if (context.rank == victim) {
      if (how == "killed") ::raise(SIGKILL);
      if (how == "stopped") ::raise(SIGSTOP);
      if (how == "leaves") ::_exit(9);
      if (how == "exits") std::exit(0);
    }
    if (others_work) std::this_thread::sleep_for(std::chrono::seconds(60));
    context.world->Barrier();
  };
}

int Run(const Scenario& scenario) {
  MpiWorld& world = MpiWorld::OfProcess();
  world.Start();
  RunFailure mine = {.rank = world.rank()};
  try {
    const auto device = MakeCpuDevice(1);
    ParallelContext context =
        MakeMpiContext(world, {.dp = world.size()}, *device, /*has_experts=*/false);
    scenario(context, *device);
    world.Finish();
    Say(world.rank(), "done");
    return 0;
  } catch (const CommError& error) {
    mine.consequence = true;
    mine.message = error.what();
  } catch (const Error& error) {
    mine.code = error.code();
    mine.message = error.what();
  }
  world.Fail(mine);
  Say(world.rank(), mine.message);
  return static_cast<int>(world.AgreeOnFailure(std::chrono::milliseconds(500)).code);
}

}  // namespace
}  // namespace trimtab

int main(int argc, char** argv) {
  // What follows the name only marks the processes of this run.
  if (argc < 2) return 64;
  // As the command does: mpirun sends it when another rank has died.
  std::signal(SIGTERM, [](int) {});
  const auto found = trimtab::Scenarios().find(argv[1]);
  const trimtab::Scenario scenario =
      found == trimtab::Scenarios().end() ? trimtab::LossOf(argv[1]) : found->second;
  return scenario ? trimtab::Run(scenario) : 64;
}
