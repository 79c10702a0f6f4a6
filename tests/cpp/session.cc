#include "vgpu/device/session.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "comm/comm.h"
#include "vgpu_rank.h"

using namespace prism;
using namespace prism::vgpu;
using namespace prism::vgpu::testing;

namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;

Runtime::Copy plain(void* to, const void* from, std::int64_t bytes) {
  return {to, from, bytes, 1, bytes, bytes};
}

}  // namespace

TEST_CASE("kernels: id by launch, host time and duration from the profile") {
  Session& session = Session::get();
  session.start(rank_options());
  static const char stub = 0;
  FunctionNames::get().add(&stub, five);
  KernelShape shape;
  CHECK(session.launch(nullptr, &stub, shape, nullptr));
  CHECK(session.launch(nullptr, &stub, shape, nullptr));
  shape.grid[0] = 7;
  CHECK(session.launch(nullptr, &stub, shape, nullptr));
  session.kernel(nullptr, five, {});  // the same kernel, by name
  int unregistered = 0;
  CHECK_FALSE(session.launch(nullptr, &unregistered, shape, nullptr));
  const Graph graph = session.finish({}, "{}");
  const std::vector<Op> ops = ops_of(graph);
  REQUIRE(ops.size() == 4);
  CHECK(ops[0].ref == ops[1].ref);
  CHECK(ops[0].ref == ops[3].ref);
  CHECK(ops[0].ref != ops[2].ref);
  CHECK(graph.kernel_name(ops[2].ref) == five);
  CHECK(graph.kernel_shape(ops[2].ref).grid[0] == 7);
  CHECK(ops[0].host_ns == 10000);
  CHECK(ops[0].duration_ns == 5000);
  CHECK(ops[0].provenance() == Provenance::table);
  CHECK_FALSE(session.recording());
}

TEST_CASE("many launch shapes keep their own kernels") {
  Session& session = Session::get();
  session.start(rank_options());
  static const char stubs[3] = {};
  for (const char& stub : stubs) {
    FunctionNames::get().add(&stub, "kernel_" + std::to_string(&stub - stubs));
  }
  const auto launch_all = [&] {
    for (std::uint32_t i = 0; i < 3000; ++i) {
      KernelShape shape;
      shape.grid = {i + 1, i % 7 + 1, 1};
      shape.block = {i % 32 + 1, 1, 1};
      shape.shared_bytes = i % 5;
      REQUIRE(session.launch(nullptr, &stubs[i % 3], shape, nullptr));
    }
  };
  launch_all();
  launch_all();
  const Graph graph = session.finish({}, "{}");
  const std::vector<Op> ops = ops_of(graph);
  REQUIRE(ops.size() == 6000);
  for (std::uint32_t i = 0; i < 3000; ++i) {
    REQUIRE(ops[i].ref == ops[i + 3000].ref);
    REQUIRE(graph.kernel_shape(ops[i].ref).grid[0] == i + 1);
    REQUIRE(graph.kernel_name(ops[i].ref).back() == static_cast<char>('0' + i % 3));
  }
}

TEST_CASE("torch's own threads are answered, never recorded") {
  Session& session = Session::get();
  session.start(rank_options());
  Runtime& gpu = Runtime::get();
  void* event = gpu.create_event(false);
  for (int i = 0; i < 5; ++i) session.kernel(nullptr, five, {});
  gpu.record(event, nullptr);
  CHECK(gpu.query_event(event) == Outcome::not_ready);
  std::thread watchdog([&] {
    pthread_setname_np(pthread_self(), "pt_nccl_watchdg");
    CHECK_FALSE(session.recording());
    CHECK(gpu.query_event(event) == Outcome::done);
    CHECK(gpu.query_stream(nullptr) == Outcome::done);
    session.kernel(nullptr, five, {});
    gpu.synchronize_device();
  });
  watchdog.join();
  std::thread autograd([&] {
    pthread_setname_np(pthread_self(), "pt_autograd_0");
    CHECK(session.recording());
    CHECK(gpu.query_event(event) == Outcome::not_ready);
  });
  autograd.join();
  gpu.destroy_event(event);
  CHECK(finish().size() == 8);  // 5 kernels, record, 2 queries
}

TEST_CASE("copies: host bytes come back, what was never written reads as zero") {
  Session& session = Session::get();
  session.start(rank_options());
  Runtime& gpu = Runtime::get();
  auto* device = static_cast<char*>(gpu.allocate(8 * mib, 0));
  REQUIRE(device != nullptr);
  CHECK(session.is_device(device));
  std::string text = "bytes the host wrote";
  const auto size = static_cast<std::int64_t>(text.size());
  std::string back(text.size(), '?');
  gpu.copy(nullptr, plain(device + 100, text.data(), size), false);
  gpu.copy(nullptr, plain(device + 4096, device + 100, size), false);
  gpu.copy(nullptr, plain(back.data(), device + 4096, size), false);
  CHECK(back == text);
  gpu.copy(nullptr, plain(back.data(), device + mib, size), true);
  CHECK(back == std::string(text.size(), '\0'));

  // A copy from what was never written clears its target.
  gpu.copy(nullptr, plain(device + 100, device + 2 * mib, size), false);
  gpu.copy(nullptr, plain(back.data(), device + 100, size), true);
  CHECK(back == std::string(text.size(), '\0'));

  // Above the limit bytes do not move; the target reads as zero, not as what lay there.
  std::vector<char> large(2 * mib, 'x');
  gpu.copy(nullptr, plain(device + 4096, large.data(), 2 * mib), false);
  gpu.copy(nullptr, plain(large.data(), device + 4096, 2 * mib), false);
  CHECK(std::count(large.begin(), large.end(), '\0') == 2 * mib);

  gpu.set(nullptr, device, 0x5a, 1, 64, false);
  gpu.set(nullptr, device + 64, 0x01020304, 4, 8, false);
  char set[72];
  gpu.copy(nullptr, plain(set, device, 72), true);
  CHECK(std::count(set, set + 64, 0x5a) == 64);
  const std::uint32_t word = 0x01020304;
  CHECK(std::memcmp(set + 68, &word, 4) == 0);

  // Rows: 3 of 4 bytes out of a pitch of 16.
  gpu.copy(nullptr, plain(device, "aaaa____________bbbb____________cccc", 36), false);
  char rows[12];
  gpu.copy(nullptr, {rows, device, 4, 3, 4, 16}, true);
  CHECK(std::string_view(rows, 12) == "aaaabbbbcccc");

  const std::string report = session.report();
  CHECK(report.find("\"written\": {\"reads\": 3") != std::string::npos);
  CHECK(report.find("\"zero\": {\"reads\": 2") != std::string::npos);
  CHECK(report.find("\"large\": {\"reads\": 1") != std::string::npos);
  gpu.free(device);
  const std::vector<Op> ops = finish();
  // Pageable to device does not wait; device to pageable does, also in its asynchronous form.
  CHECK_FALSE(ops[1].is_blocking());
  CHECK(ops[1].detail == static_cast<std::uint8_t>(CopyDirection::host_to_device));
  CHECK(ops[3].is_blocking());
  CHECK(ops[3].detail == static_cast<std::uint8_t>(CopyDirection::device_to_host));
  CHECK(ops[3].bytes == size);
  CHECK(ops[3].duration_ns ==
        copy_cost_ns(size, CopyDirection::device_to_host, rank_options().device));
}

TEST_CASE("a copy behind queued work waits for it; pageable bytes are taken at the call") {
  Session& session = Session::get();
  session.start(rank_options());
  Runtime& gpu = Runtime::get();
  auto* device = static_cast<char*>(gpu.allocate(2 * mib, 0));
  auto* pinned = static_cast<char*>(gpu.allocate_pinned(64));
  std::strcpy(pinned, "before");
  char pageable[8] = "first";
  session.enqueue(nullptr, [&] {
    std::strcpy(device, "moved");
    session.note_written(device, 6);
  });
  gpu.copy(nullptr, plain(device + 64, pageable, 8), false);
  std::strcpy(pageable, "second");
  gpu.copy(nullptr, plain(pinned, device, 6), false);  // asynchronous: pinned
  CHECK(std::string(pinned) == "before");
  gpu.synchronize_stream(nullptr);
  CHECK(std::string(pinned) == "moved");
  char back[8];
  gpu.copy(nullptr, plain(back, device + 64, 8), true);
  CHECK(std::string(back) == "first");
  CHECK(gpu.find(pinned).where == AddressInfo::Where::pinned);
  CHECK(gpu.find(pageable).where == AddressInfo::Where::unregistered);
  CHECK(gpu.find(device + 5).where == AddressInfo::Where::device);
  gpu.free(device);
  gpu.free_pinned(pinned);
  finish();
}

TEST_CASE("a block that is handed out again is cleared behind the work that still uses it") {
  Session& session = Session::get();
  session.start(rank_options());
  Runtime& gpu = Runtime::get();
  auto* device = static_cast<char*>(gpu.allocate(2 * mib, 0));
  std::vector<char> seen(4, '?');
  gpu.block_allocated(device, 512);
  gpu.copy(nullptr, plain(device, "old", 4), false);
  const auto move = [&] { std::memcpy(seen.data(), device, 4); };
  SUBCASE("ranges known") { session.enqueue(nullptr, move, {range_of(device, 4)}); }
  SUBCASE("ranges not known") { session.enqueue(nullptr, move); }
  gpu.block_freed(512);
  gpu.block_allocated(device, 512);
  gpu.synchronize_device();
  CHECK(std::string(seen.data()) == "old");
  CHECK(std::string(device).empty());
  gpu.free(device);
  const std::vector<Op> ops = finish();
  CHECK(ops[1].kind == OpKind::allocate);
  CHECK(ops[1].bytes == 512);
  CHECK(ops[3].kind == OpKind::free);
}

TEST_CASE("a block is cleared behind work on it that another thread is in the middle of") {
  Session& session = Session::get();
  session.start(rank_options());
  Runtime& gpu = Runtime::get();
  auto* device = static_cast<char*>(gpu.allocate(2 * mib, 0));
  gpu.block_allocated(device, 512);
  std::atomic<bool> begun{false}, may_end{false};
  session.enqueue(nullptr,
                  [&] {
                    begun = true;
                    while (!may_end) std::this_thread::yield();
                    std::strcpy(device, "late");
                    session.note_written(device, 5);
                  },
                  {range_of(device, 5)});
  std::thread looks([&] { session.drain(nullptr); });
  while (!begun) std::this_thread::yield();
  gpu.block_freed(512);
  gpu.block_allocated(device, 512);
  may_end = true;
  looks.join();
  gpu.synchronize_device();
  CHECK(std::string(device).empty());
  gpu.free(device);
  finish();
}

TEST_CASE("memory: accounting, refusal, and what the report says of it") {
  Session& session = Session::get();
  session.start(rank_options());
  Runtime& gpu = Runtime::get();
  const std::int64_t total = std::int64_t{1} << 30;
  CHECK(gpu.memory(0).total_bytes == total);
  CHECK(gpu.memory(0).free_bytes == total - 64 * mib);
  void* big = gpu.allocate(900 * mib + 1, 0);
  CHECK(gpu.memory(0).free_bytes == (960 - 902) * mib);  // whole granules
  CHECK(gpu.memory(1).free_bytes == 960 * mib);
  CHECK(gpu.allocate(59 * mib, 0) == nullptr);
  CHECK(gpu.allocate(INT64_MAX, 0) == nullptr);
  void* rest = gpu.allocate(58 * mib, 0);
  CHECK(rest != nullptr);
  const std::string report = session.report();
  CHECK(report.find("\"asked_bytes\": 9223372036854775807") != std::string::npos);
  CHECK(report.find("\"count\": 2") != std::string::npos);
  CHECK(gpu.free(rest));
  CHECK(gpu.free(big));
  CHECK_FALSE(gpu.free(big));
  CHECK(gpu.memory(0).free_bytes == 960 * mib);
  MemoryPeaks peaks;
  peaks.allocated_bytes = 5;
  const Graph graph = session.finish(peaks, "{}");
  CHECK(graph.rank(1).peaks.allocated_bytes == 5);
  CHECK(graph.rank(1).peaks.device_bytes == total);
  const std::vector<Op> ops = ops_of(graph);
  REQUIRE(ops.size() == 6);
  CHECK(ops[0].kind == OpKind::reserve);
  CHECK(ops[0].bytes == 900 * mib + 1);
  CHECK(ops[0].host_ns == 5000);
  CHECK(ops[2].kind == OpKind::device_sync);  // cudaFree waits for the device
  CHECK(ops[3].kind == OpKind::release);
  CHECK(ops[5].bytes == 900 * mib + 1);
}

TEST_CASE("communication: parts of a launch, durations by members, memory of communicators") {
  Session& session = Session::get();
  SessionOptions options = rank_options();
  options.cluster.gpus_per_node = 2;
  session.start(options);
  OpenCommunicator open;
  open.name = "world";
  open.size = 4;
  open.position = 1;
  const std::uint32_t known = session.add_communicator(open);
  const std::uint32_t members[] = {0, 1, 2, 3};
  session.set_members(known, members);
  open.name = "pair";
  open.size = 2;
  open.position = 0;
  const std::uint32_t asked = session.add_communicator(open);
  open.name = "guess";
  const std::uint32_t guessed = session.add_communicator(open);
  int questions = 0;
  session.set_member_source([&](const OpenCommunicator& which) -> std::vector<std::uint32_t> {
    ++questions;
    if (which.slot == asked) return {1, 3};
    return {};
  });

  Op reduce;
  reduce.kind = OpKind::all_reduce;
  reduce.dtype = DataType::float32;
  reduce.ref = known;
  reduce.bytes = 64 * mib;
  session.communicate(nullptr, std::span(&reduce, 1));
  Op parts[2];
  parts[0].kind = OpKind::send;
  parts[1].kind = OpKind::recv;
  for (Op& part : parts) {
    part.ref = asked;
    part.peer = 1;
    part.bytes = 4 * mib;
  }
  session.communicate(nullptr, parts);
  session.communicate(nullptr, parts);
  Op other = reduce;
  other.ref = guessed;
  session.communicate(nullptr, std::span(&other, 1));
  CHECK(questions == 2);  // once each
  CHECK(session.report().find("\"guessed_members\": [\"guess\"]") != std::string::npos);
  const std::uint32_t last[] = {1, 2};
  session.set_members(guessed, last);
  session.set_member_source({});
  const Graph graph = session.finish({}, "{}");
  const std::vector<Op> ops = ops_of(graph);
  REQUIRE(ops.size() == 6);
  const CommShape world = shape_of(members, options.cluster);
  CHECK(ops[0].duration_ns == collective_cost(OpKind::all_reduce, 64 * mib, DataType::float32,
                                              Reduction::sum, world, options.cluster)
                                  .duration_ns);
  CHECK(ops[0].host_ns == 7000);
  CHECK(ops[0].provenance() == Provenance::model);
  CHECK(ops[1].continues());
  CHECK_FALSE(ops[2].continues());
  CHECK(ops[2].host_ns == 0);
  CHECK(ops[1].duration_ns == p2p_cost(4 * mib, false, options.cluster).duration_ns);
  CHECK(graph.rank(1).peaks.device_bytes > 64 * mib);
}

TEST_CASE("a finished communication launch moves the clock by its longest part") {
  Session& session = Session::get();
  SessionOptions options = rank_options();
  session.start(options);
  Runtime& gpu = Runtime::get();
  OpenCommunicator open;
  open.name = "world";
  open.size = 4;
  open.position = 1;
  const std::uint32_t slot = session.add_communicator(open);
  const std::uint32_t members[] = {0, 1, 2, 3};
  session.set_members(slot, members);
  void* start = gpu.create_event(true);
  void* end = gpu.create_event(true);
  Op parts[2];
  for (Op& part : parts) part.kind = OpKind::send, part.ref = slot, part.peer = 1;
  parts[0].bytes = 100;
  parts[1].bytes = 500 * mib;
  session.kernel(nullptr, five, {});
  gpu.record(start, nullptr);
  session.communicate(nullptr, parts);
  gpu.record(end, nullptr);
  gpu.synchronize_device();
  float ms = 0;
  CHECK(gpu.elapsed(start, end, ms) == Outcome::done);
  const std::int64_t longest = p2p_cost(500 * mib, true, options.cluster).duration_ns;
  CHECK(ms == doctest::Approx(static_cast<double>(longest) * 1e-6).epsilon(0.1));
  CHECK(ms * 1e6 >= static_cast<double>(longest) * 0.999999);
  gpu.destroy_event(start);
  gpu.destroy_event(end);
  finish();
}

TEST_CASE("marks, iterations and call sites") {
  Session& session = Session::get();
  session.start(rank_options());
  CHECK(session.num_iterations() == 0);
  session.mark(MarkKind::iteration, "");
  session.mark(MarkKind::phase, "warm-up");
  session.mark(MarkKind::iteration, "");
  CHECK(session.num_iterations() == 2);
  const Graph graph = session.finish({}, R"({"command": "x"})");
  const std::vector<Op> ops = ops_of(graph);
  CHECK(graph.string(ops[1].ref) == "warm-up");
  CHECK(graph.metadata() == R"({"command": "x"})");
}

TEST_CASE("unimplemented calls are counted by name, and the report is one JSON object") {
  Session& session = Session::get();
  session.start(rank_options());
  session.note_unimplemented("cudart", "cudaGraphLaunch");
  session.note_unimplemented("cudart", "cudaGraphLaunch");
  session.note_unimplemented("nccl", "a \"quoted\"\n name");
  session.kernel(nullptr, "a_kernel_nobody_knows", {});
  const std::string report = session.report();
  CHECK(report.find(R"("function": "cudaGraphLaunch", "calls": 2)") != std::string::npos);
  CHECK(report.find(R"(a \"quoted\"\u000a name)") != std::string::npos);
  CHECK(report.find(R"("name": "a_kernel_nobody_knows", "launches": 1, "share": 1.0)") !=
        std::string::npos);
  finish();
}

TEST_CASE("measured host time: every op carries the time since the one before") {
  Session& session = Session::get();
  SessionOptions options = rank_options();
  options.measure_host = true;
  session.start(options);
  session.kernel(nullptr, five, {});
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  session.kernel(nullptr, five, {});
  const std::vector<Op> ops = finish();
  REQUIRE(ops.size() == 2);
  CHECK(ops[1].host_ns >= 5'000'000);
  CHECK(ops[1].duration_ns == 5000);
}

TEST_CASE("a forked process records a rank of its own") {
  Session& session = Session::get();
  Runtime& gpu = Runtime::get();
  void* before = gpu.create_event(false);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    session.start(rank_options());
    session.kernel(nullptr, five, {});
    gpu.wait(nullptr, before);  // not recorded here: no effect
    gpu.record(before, nullptr);
    gpu.synchronize_device();
    void* block = gpu.allocate(mib, 0);
    const bool good = block != nullptr && gpu.free(block) && finish().size() == 6;
    _exit(good ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK_FALSE(session.recording());
  gpu.destroy_event(before);
}
