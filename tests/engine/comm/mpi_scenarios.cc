// One process of a run that goes wrong in the way its argument says. Prints one line, "rank R: what
// it was told", and ends as a run of the trimtab command does. Started by mpi_test.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
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
      {"dies",
       [](ParallelContext& context, Device&) {
         if (context.rank == 1) ::_exit(9);
         context.world->Barrier();
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

void Say(int rank, const std::string& what) {
  // One write, so that the lines of two processes do not mix.
  const std::string line = fmt::format("rank {}: {}\n", rank, what);
  [[maybe_unused]] const ssize_t ignored = ::write(STDOUT_FILENO, line.data(), line.size());
}

int Run(const Scenario& scenario) {
  MpiWorld& world = MpiWorld::OfProcess();
  RunFailure mine = {.rank = world.rank()};
  try {
    const auto device = MakeCpuDevice(1);
    ParallelContext context = MakeMpiContext(world, {.dp = world.size()}, *device);
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
  if (argc != 2 || !trimtab::Scenarios().contains(argv[1])) return 64;
  return trimtab::Run(trimtab::Scenarios().at(argv[1]));
}
