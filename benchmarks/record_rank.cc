// Times calls into the virtual GPU as torch makes them: launches, events, allocations, all-reduces.
// Built and run by record_rank.py; prints JSON.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "vgpu/device/session.h"

namespace {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

// The stand-ins' exported names, with the signatures of the CUDA runtime and NCCL.
struct Calls {
  void (*register_function)(void**, const char*, char*, const char*, int, void*, void*, void*,
                            void*, int*);
  int (*launch)(const void*, Dim3, Dim3, void**, std::size_t, void*);
  int (*create_event)(void**);
  int (*record)(void*, void*);
  int (*wait)(void*, void*, unsigned);
};

template <class F>
F find(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  return reinterpret_cast<F>(found);
}

double ns_each(int count, const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) body();
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / count;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace prism;
  if (argc != 3) return 2;
  const int count = std::atoi(argv[2]);
  void* library = dlopen((std::string(argv[1]) + "/libcudart.so.13").c_str(), RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  Calls calls;
  calls.register_function =
      find<decltype(calls.register_function)>(library, "__cudaRegisterFunction");
  calls.launch = find<decltype(calls.launch)>(library, "cudaLaunchKernel");
  calls.create_event = find<decltype(calls.create_event)>(library, "cudaEventCreate");
  calls.record = find<decltype(calls.record)>(library, "cudaEventRecord");
  calls.wait = find<decltype(calls.wait)>(library, "cudaStreamWaitEvent");

  // Forty kernels of six shapes each: as many as a transformer's layers use.
  std::vector<char> stubs(40);
  for (std::size_t i = 0; i < stubs.size(); ++i) {
    static std::vector<std::string> names(stubs.size());
    names[i] = "benchmark_kernel_" + std::to_string(i);
    calls.register_function(nullptr, &stubs[i], nullptr, names[i].c_str(), -1, nullptr, nullptr,
                            nullptr, nullptr, nullptr);
  }
  vgpu::Session& session = vgpu::Session::get();
  session.start({.device = session.options().device, .cluster = session.options().cluster});
  const std::uint32_t slot = session.add_communicator({.name = "self", .size = 1});
  session.set_members(slot, std::vector<std::uint32_t>{0});

  void* event = nullptr;
  calls.create_event(&event);
  std::size_t at = 0;
  const auto launch = [&] {
    ++at;
    const auto shape = static_cast<unsigned>(at % 6);
    calls.launch(&stubs[at % stubs.size()], {64 + shape}, {128}, nullptr, 0, nullptr);
  };
  const auto event_pair = [&] {
    calls.record(event, nullptr);
    calls.wait(nullptr, event, 0);
  };
  const auto all_reduce = [&] {
    Op part;
    part.kind = OpKind::all_reduce;
    part.dtype = DataType::bfloat16;
    part.ref = slot;
    part.bytes = 1 << 24;
    session.communicate(nullptr, {&part, 1});
  };
  // A block as training makes them: twelve kernels, events, a collective.
  const auto block = [&] {
    at = 0;
    for (int k = 0; k < 12; ++k) launch();
    event_pair();
    all_reduce();
  };
  for (int i = 0; i < 1000; ++i) block();
  const double per_block = ns_each(count / 15, block);
  const double per_launch = ns_each(count, [&] {
    launch();
    if (at % 240 == 0) all_reduce();
  });
  const double per_event = ns_each(count / 2, [&] {
    event_pair();
    if (++at % 120 == 0) all_reduce();
  });
  std::printf("{\"block_of_15_ops\": %.1f, \"launches\": %.1f, \"events\": %.1f}\n", per_block / 15,
              per_launch, per_event / 2);
  return 0;
}
