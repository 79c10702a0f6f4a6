#include "vgpu/device/stream.h"

#include <string>
#include <thread>

#include "vgpu_rank.h"

using namespace prism;
using namespace prism::vgpu;
using namespace prism::vgpu::testing;

namespace {

constexpr std::uint32_t non_blocking = 1;

void run_five(void* stream) { Session::get().kernel(stream, five, {}); }

}  // namespace

TEST_CASE("elapsed time is the modelled duration, and not before the host has reached it") {
  Session::get().start(rank_options());
  Runtime& gpu = Runtime::get();
  void* start = gpu.create_event(true);
  void* end = gpu.create_event(true);
  float ms = -1;
  CHECK(gpu.elapsed(start, end, ms) == Outcome::bad_handle);  // never recorded

  for (int i = 0; i < 10; ++i)
    run_five(nullptr);  // the device is behind: launch 10 us, kernel 5 us
  CHECK(gpu.record(start, nullptr) == Outcome::done);
  run_five(nullptr);
  CHECK(gpu.record(end, nullptr) == Outcome::done);
  CHECK(gpu.query_event(end) == Outcome::not_ready);
  CHECK(gpu.elapsed(start, end, ms) == Outcome::not_ready);
  CHECK(gpu.synchronize_event(end) == Outcome::done);
  CHECK(gpu.query_event(end) == Outcome::done);
  CHECK(gpu.elapsed(start, end, ms) == Outcome::done);
  // The stream is done 5 us after the last launch (105 us); the next comes at 110.1 us and takes 5.
  CHECK(ms == doctest::Approx(0.0101f));

  void* untimed = gpu.create_event(false);
  gpu.record(untimed, nullptr);
  CHECK(gpu.elapsed(start, untimed, ms) == Outcome::bad_handle);
  for (void* event : {start, end, untimed}) CHECK(gpu.destroy_event(event) == Outcome::done);
  CHECK(gpu.destroy_event(end) == Outcome::bad_handle);
  CHECK(gpu.record(end, nullptr) == Outcome::bad_handle);
  finish();
}

TEST_CASE("a busy stream: elapsed time between records is the kernels between them") {
  SessionOptions options = rank_options();
  options.device.host.launch_ns = 100;  // the host runs ahead
  Session::get().start(options);
  Runtime& gpu = Runtime::get();
  void* start = gpu.create_event(true);
  void* end = gpu.create_event(true);
  run_five(nullptr);
  gpu.record(start, nullptr);
  for (int i = 0; i < 3; ++i) run_five(nullptr);
  gpu.record(end, nullptr);
  CHECK(gpu.query_stream(nullptr) == Outcome::not_ready);
  gpu.synchronize_stream(nullptr);
  CHECK(gpu.query_stream(nullptr) == Outcome::done);
  float ms = 0;
  CHECK(gpu.elapsed(start, end, ms) == Outcome::done);
  CHECK(ms == doctest::Approx(0.015f));
  gpu.destroy_event(start);
  gpu.destroy_event(end);
  finish();
}

TEST_CASE("events are named by how many records ago, whatever their handles") {
  Session::get().start(rank_options());
  Runtime& gpu = Runtime::get();
  void* side = gpu.create_stream(non_blocking, 0, 0);
  void* first = gpu.create_event(false);
  void* second = gpu.create_event(false);
  run_five(nullptr);
  gpu.record(first, nullptr);
  run_five(nullptr);
  gpu.record(second, nullptr);
  gpu.wait(side, first);
  gpu.wait(side, second);
  run_five(side);
  gpu.record(first, side);  // the event moves on
  gpu.wait(nullptr, first);
  gpu.synchronize_event(second);
  gpu.query_event(first);
  gpu.destroy_event(first);
  gpu.destroy_event(second);
  gpu.destroy_stream(side);
  const std::vector<Op> ops = finish();

  REQUIRE(ops.size() == 11);
  CHECK(ops[4].kind == OpKind::event_wait);
  CHECK(ops[4].stream == 1);
  CHECK(ops[4].event_stream == 0);
  CHECK(ops[4].peer == 2);
  CHECK(ops[5].peer == 1);
  CHECK(ops[8].kind == OpKind::event_wait);
  CHECK(ops[8].stream == 0);
  CHECK(ops[8].event_stream == 1);
  CHECK(ops[8].peer == 1);
  CHECK(ops[9].kind == OpKind::event_sync);
  CHECK(ops[9].event_stream == 0);
  CHECK(ops[9].peer == 1);
  CHECK(ops[10].kind == OpKind::query);
  CHECK(ops[10].event_stream == 1);
}

TEST_CASE("streams are numbered in order of first use") {
  Session::get().start(rank_options());
  Runtime& gpu = Runtime::get();
  void* a = gpu.create_stream(non_blocking, 0, 0);
  void* b = gpu.create_stream(non_blocking, -1, 1);
  CHECK(gpu.stream_priority(b) == -1);
  CHECK(gpu.stream_device(b) == 1);
  run_five(b);
  run_five(a);
  run_five(nullptr);
  gpu.destroy_stream(a);
  gpu.destroy_stream(b);
  CHECK(gpu.destroy_stream(b) == Outcome::bad_handle);
  CHECK(gpu.synchronize_stream(b) == Outcome::bad_handle);
  CHECK(gpu.destroy_stream(nullptr) == Outcome::bad_handle);
  const std::vector<Op> ops = finish();
  REQUIRE(ops.size() == 3);
  CHECK(ops[0].stream == 1);
  CHECK(ops[1].stream == 2);
  CHECK(ops[2].stream == 0);
}

TEST_CASE("a blocking stream and the default stream follow each other's work, once") {
  Session::get().start(rank_options());
  Runtime& gpu = Runtime::get();
  void* blocking = gpu.create_stream(0, 0, 0);
  void* free_running = gpu.create_stream(non_blocking, 0, 0);
  run_five(blocking);
  run_five(free_running);
  run_five(nullptr);   // after blocking, not after free_running
  run_five(nullptr);   // nothing new to follow
  run_five(blocking);  // after the default stream
  gpu.destroy_stream(blocking);
  gpu.destroy_stream(free_running);
  std::string kinds;
  for (const Op& op : finish()) {
    kinds += op.kind == OpKind::kernel         ? 'k'
             : op.kind == OpKind::event_record ? 'r'
             : op.kind == OpKind::event_wait   ? 'w'
                                               : '?';
    kinds += std::to_string(op.stream);
  }
  CHECK(kinds == "k1k2r1w0k0k0r0w1k1r1w0");
}

TEST_CASE("moves run in stream order, when the host looks") {
  Session& session = Session::get();
  session.start(rank_options());
  Runtime& gpu = Runtime::get();
  void* a = gpu.create_stream(non_blocking, 0, 0);
  void* b = gpu.create_stream(non_blocking, 0, 0);
  void* event = gpu.create_event(false);
  std::string order;
  session.enqueue(a, [&] { order += '1'; });
  session.enqueue(a, [&] { order += '2'; });
  gpu.record(event, a);
  session.enqueue(a, [&] { order += '3'; });
  gpu.wait(b, event);
  session.enqueue(b, [&] { order += 'b'; });
  CHECK(order.empty());

  SUBCASE("a stream that waits brings in the other's moves up to the event, no more") {
    gpu.synchronize_stream(b);
    CHECK(order == "12b");
    session.drain(a);
    CHECK(order == "12b3");
  }
  SUBCASE("an event brings in what came before it") {
    gpu.synchronize_event(event);
    CHECK(order == "12");
    gpu.synchronize_device();
    CHECK(order.size() == 4);
  }
  SUBCASE("a query that says done has run them, one that says not ready has not") {
    run_five(a);
    CHECK(gpu.query_stream(a) == Outcome::not_ready);
    CHECK(order.empty());
    CHECK(gpu.query_event(event) == Outcome::done);
    CHECK(order == "12");
    gpu.synchronize_stream(a);
    CHECK(gpu.query_stream(a) == Outcome::done);
    session.drain_all();
  }
  SUBCASE("a host callback runs in its place") {
    gpu.host_callback(a, [&] { order += 'h'; });
    session.enqueue(a, [&] { order += '4'; });
    CHECK(order.empty());
    gpu.synchronize_device();
    CHECK(order.find("3h4") != std::string::npos);
    gpu.host_callback(a, [&] { order += 'n'; });  // nothing before it
    CHECK(order.back() == 'n');
  }
  SUBCASE("a callback does not wait for what comes behind itself") {
    gpu.host_callback(a, [&] {
      gpu.synchronize_stream(a);
      order += 'h';
    });
    void* const later = gpu.create_event(false);
    gpu.record(later, a);
    gpu.wait(b, later);
    session.enqueue(b, [&] { order += 'z'; });
    gpu.host_callback(a, [&] { session.drain_all(); });
    session.drain_all();
    CHECK(order.find('h') < order.find('z'));
    gpu.destroy_event(later);
  }
  SUBCASE("a destroyed stream's moves still run, and its events are done") {
    gpu.destroy_stream(a);
    CHECK(order == "123");
    a = gpu.create_stream(non_blocking, 0, 0);  // may reuse the place
    CHECK(gpu.query_event(event) == Outcome::done);
    session.drain_all();
    CHECK(order == "123b");
  }
  gpu.destroy_event(event);
  gpu.destroy_stream(a);
  gpu.destroy_stream(b);
  finish();
}

TEST_CASE("two threads that drain keep the order of a stream") {
  Session& session = Session::get();
  session.start(rank_options());
  std::string order;
  for (char c = 'a'; c <= 'z'; ++c) {
    session.enqueue(nullptr, [&order, c] { order += c; });
  }
  std::thread other([&] { session.drain(nullptr); });
  session.drain_all();
  other.join();
  CHECK(order == "abcdefghijklmnopqrstuvwxyz");
  finish();
}
