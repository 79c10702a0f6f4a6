// What the join makes of rows by itself; whole records come from Python (test_cupti_record.py).
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "device/cupti/buffers.h"
#include "device/cupti/join.h"
#include "device/cupti/recording.h"

using namespace prism;
using namespace prism::device::cupti;

namespace {

constexpr StreamKey null_stream{1, 7}, side{1, 8}, other{1, 9};

struct Program {
  Rows rows;
  Notes notes;
  JoinOptions options;
  JoinCounts counts;

  Program() { rows.kernels.push_back({"k", {}}); }
  std::uint32_t call(CallRole role, std::uint64_t start, std::uint64_t end,
                     std::uint32_t thread = 1) {
    const auto number = static_cast<std::uint32_t>(rows.calls.size() + 1);
    rows.calls.push_back({start, end, thread, number, 0, role, CallSide::runtime});
    return number;
  }
  void work(std::uint32_t call, StreamKey stream, std::uint64_t start, std::uint64_t end) {
    WorkRow row;
    row.correlation = call;
    row.stream = stream;
    row.start = start;
    row.end = end;
    rows.work.push_back(row);
  }
  void launch(std::uint64_t at, StreamKey stream, std::uint64_t start, std::uint64_t end) {
    work(call(CallRole::launch, at, at + 10), stream, start, end);
  }
  std::vector<Op> join() {
    Recorder recorder(0, 1);
    counts = device::cupti::join(rows, notes, options, recorder);
    const Graph graph = recorder.finish();
    std::vector<Op> ops;
    for (const std::uint32_t block : graph.program(graph.rank(0).program).blocks) {
      graph.read_block(block, ops);
    }
    return ops;
  }
};

std::vector<OpKind> kinds(const std::vector<Op>& ops) {
  std::vector<OpKind> found;
  for (const Op& op : ops) found.push_back(op.kind);
  return found;
}

}  // namespace

TEST_CASE("time before an op begins is part of it, or a callback before it") {
  Program program;
  program.launch(100, null_stream, 150, 200);
  program.options.default_stream = null_stream;
  auto ops = program.join();
  REQUIRE(ops.size() == 1);
  CHECK(ops[0].host_ns == 110);
  CHECK(ops[0].duration_ns == 90);
  CHECK(ops[0].stream == 0);
  CHECK(program.counts.gap_ns == 40);
  program.options.gaps_as_callbacks = true;
  ops = program.join();
  REQUIRE(kinds(ops) == std::vector{OpKind::host_callback, OpKind::kernel});
  CHECK(ops[0].host_ns == 110);
  CHECK(ops[0].duration_ns == 40);
  CHECK(ops[1].host_ns == 0);
  CHECK(ops[1].duration_ns == 50);
}

TEST_CASE("a host gap longer than an op holds is an op of its own") {
  Program program;
  program.launch(std::uint64_t{1} << 33, null_stream, (std::uint64_t{1} << 33) + 10,
                 (std::uint64_t{1} << 33) + 30);
  const auto ops = program.join();
  REQUIRE(kinds(ops) == std::vector{OpKind::host_gap, OpKind::kernel});
  CHECK(ops[0].duration_ns == (std::int64_t{1} << 33) + 10);
  CHECK(ops[1].host_ns == 0);
}

TEST_CASE("nodes of a graph launch run behind its stream, which goes on behind them") {
  Program program;
  program.options.default_stream = null_stream;
  const auto launch = program.call(CallRole::graph_launch, 0, 10);
  program.work(launch, other, 30, 60);
  program.work(launch, side, 20, 50);
  const auto ops = program.join();
  using enum OpKind;
  CHECK(kinds(ops) == std::vector{graph_launch, event_record, event_wait, kernel, kernel,
                                  event_record, event_wait});
  CHECK(ops[3].stream == ops[0].stream);
  CHECK(ops[4].stream == ops[2].stream);
  CHECK(ops[6].stream == ops[0].stream);
  CHECK(ops[4].duration_ns == 50);
}

TEST_CASE("a stream that is not non-blocking takes turns with the default stream") {
  Program program;
  program.rows.streams.push_back({0, null_stream, abi::StreamFlag::null});
  const auto made = program.call(CallRole::stream_create, 0, 1);
  program.rows.streams.push_back({made, side, abi::StreamFlag::blocking});
  program.launch(10, null_stream, 20, 30);
  program.launch(40, side, 50, 60);
  program.launch(70, null_stream, 80, 90);
  using enum OpKind;
  CHECK(kinds(program.join()) ==
        std::vector{kernel, event_record, event_wait, kernel, event_record, event_wait, kernel});
}

TEST_CASE("calls below others, of other threads and inside launches are no ops of their own") {
  Program program;
  program.options.is_program_thread = [](std::uint32_t thread) { return thread != 2; };
  program.launch(100, side, 120, 130);
  const auto below = program.call(CallRole::launch, 102, 108);  // the driver's, below the first
  program.rows.calls.back().side = CallSide::driver;
  program.work(below, side, 130, 140);
  program.work(program.call(CallRole::launch, 150, 160, 2), other, 160, 170);
  Note own;
  own.kind = Note::Kind::own;
  own.thread = 1;
  own.begin = 200;
  own.end = 300;
  program.notes.notes.push_back(own);
  program.launch(210, other, 220, 230);
  const auto ops = program.join();
  REQUIRE(kinds(ops) == std::vector{OpKind::kernel, OpKind::kernel});
  CHECK(ops[1].duration_ns == 10);
  CHECK(program.counts.other_threads == 1);
  CHECK(program.counts.inside_launches == 1);
}

TEST_CASE("buffers are handed out once, and come back by their own addresses alone") {
  BufferPool pool(2, 64);
  std::uint8_t* a = pool.request();
  std::uint8_t* b = pool.request();
  REQUIRE(a != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(a) % 8 == 0);
  CHECK(pool.request() == nullptr);
  CHECK(pool.refused() == 1);
  CHECK_FALSE(pool.complete(a + 8, 8));
  CHECK_FALSE(pool.complete(a, 65));
  CHECK(pool.complete(b, 0));
  CHECK_FALSE(pool.complete(b, 0));
  const auto filled = pool.take();
  REQUIRE(filled);
  CHECK(filled->data == b);
  CHECK(pool.request() == nullptr);
  pool.done(*filled);
  CHECK(pool.request() == b);
}

TEST_CASE("threads note while CUPTI's own hands over buffers and others are asked for") {
  void* library = dlopen(PRISM_DOUBLE_CUPTI, RTLD_NOW);
  REQUIRE(library != nullptr);
  const auto reset = reinterpret_cast<void (*)()>(dlsym(library, "double_reset"));
  const auto deliver = reinterpret_cast<void (*)()>(dlsym(library, "double_deliver"));
  const auto post = reinterpret_cast<void (*)(const std::uint8_t*, std::size_t, bool)>(
      dlsym(library, "double_post"));
  reset();
  Recording& recording = Recording::get();
  RecordingOptions options;
  options.library = PRISM_DOUBLE_CUPTI;
  options.buffer_bytes = 4096;
  recording.start(options);
  constexpr int rounds = 200;
  std::thread device([&] {
    for (std::uint32_t i = 1; i <= rounds; ++i) {
      abi::Api call{abi::Kind::runtime, 211, i, i, 1, 1, i, 0};
      abi::Kernel kernel{};
      kernel.kind = abi::Kind::concurrent_kernel;
      kernel.start = kernel.end = i;
      kernel.correlation = i;
      kernel.name = "k";
      for (const auto& [data, size] :
           {std::pair<const void*, std::size_t>{&call, sizeof call},
            std::pair<const void*, std::size_t>{&kernel, sizeof kernel}}) {
        post(static_cast<const std::uint8_t*>(data), size, true);
      }
      deliver();
    }
  });
  std::thread program([&] {
    for (int i = 0; i < rounds; ++i) recording.block_allocated(1);
  });
  for (int i = 0; i < 20; ++i) recording.flush();
  program.join();
  device.join();
  recording.stop();
  const Graph graph = recording.finish({}, {}, "{}");
  const std::string report = recording.report();
  CHECK(report.find("\"lost_work\": 0,") != std::string::npos);
  CHECK(report.find("\"damaged_buffers\": 0,") != std::string::npos);
}
