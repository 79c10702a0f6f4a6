#include "vgpu/device/watchdog.h"

#include <pthread.h>

#include <atomic>
#include <thread>

#include "vgpu_rank.h"

using namespace prism;
using namespace prism::vgpu;
using namespace prism::vgpu::testing;

namespace {

constexpr std::int64_t ms = 1'000'000;

Event completing_at(std::int64_t time_ns) {
  Event event;
  event.time_ns = time_ns;
  return event;
}

// One launch as torch makes it: its own stream waits for the program's, and records the end.
void launch(void* own, std::uint32_t slot, void* fence, void* end) {
  Runtime& gpu = Runtime::get();
  gpu.record(fence, nullptr);
  gpu.wait(own, fence);
  Op op;
  op.kind = OpKind::all_reduce;
  op.ref = slot;
  op.bytes = 1 << 20;
  Session::get().communicate(own, {&op, 1});
  gpu.record(end, own);
}

}  // namespace

TEST_CASE("the watchdog sees what was complete at the last look, however often it asks") {
  WatchdogView view;
  Event early = completing_at(90 * ms);
  Event late = completing_at(101 * ms);
  view.add(early);
  view.add(late);
  CHECK_FALSE(view.look(99 * ms));
  CHECK_FALSE(view.answer(early, 1));
  CHECK(view.look(150 * ms));  // a look at 100 ms
  CHECK(view.answer(early, 2));
  CHECK_FALSE(view.all_seen());  // told, but it may not have acted on it
  CHECK_FALSE(view.answer(late, 2));
  CHECK(view.all_seen());
  CHECK(view.answer(early, 2));
  CHECK_FALSE(view.look(199 * ms));
  CHECK_FALSE(view.answer(late, 3));
  CHECK(view.look(200 * ms));
  CHECK(view.answer(late, 4));
  CHECK(view.answer(late, 4));
  CHECK(view.all_seen());
}

TEST_CASE("what the program waits for, and what is recorded anew, is nobody's to see") {
  WatchdogView view;
  Event waited = completing_at(1 * ms);
  Event shown = completing_at(2 * ms);
  view.add(waited);
  view.add(shown);
  view.drop(waited);
  CHECK(view.answer(waited, 1));
  CHECK(view.look(100 * ms));
  view.drop(shown);
  CHECK(view.all_seen());
  view.drop(shown);
  CHECK(view.all_seen());
}

TEST_CASE("where communicators end or nobody looks, everything is complete") {
  WatchdogView view;
  Event first = completing_at(500 * ms);
  Event second = completing_at(600 * ms);
  view.add(first);
  view.show_all();
  CHECK(view.answer(first, 1));
  CHECK(view.all_seen());
  view.add(second);
  CHECK_FALSE(view.answer(second, 1));
  view.give_up();
  CHECK(view.answer(second, 1));
  view.add(first);
  CHECK(view.answer(first, 1));
  CHECK_FALSE(view.look(1000 * ms));
}

TEST_CASE("a launch nobody waited for is shown to a watchdog before the launch after a look") {
  SessionOptions options = rank_options();
  options.device.host.launch_ns = 40 * ms;
  Session::get().start(options);
  Runtime& gpu = Runtime::get();
  OpenCommunicator open;
  open.name = "all";
  open.size = 4;
  open.position = 1;
  const std::uint32_t slot = Session::get().add_communicator(open);
  Session::get().set_members(slot, std::vector<std::uint32_t>{0, 1, 2, 3});
  void* own = gpu.create_stream(1, 0, 0);
  void* fence = gpu.create_event(false);
  constexpr int launches = 12;
  void* ends[launches];
  for (void*& end : ends) end = gpu.create_event(false);

  // It looks at everything all the time, and notes how many it saw.
  std::atomic<int> launched{0};
  std::atomic<bool> stop{false};
  std::atomic<int> seen{0};
  std::thread watchdog([&] {
    pthread_setname_np(pthread_self(), "pt_nccl_watchdg");
    bool done[launches] = {};
    while (!stop) {
      for (int i = 0; i < launched; ++i) {
        if (done[i] || gpu.query_event(ends[i]) != Outcome::done) continue;
        done[i] = true;
        ++seen;
        gpu.query_event(ends[i]);
      }
    }
  });
  int seen_before_launch[launches];
  for (int i = 0; i < launches; ++i) {
    Session::get().kernel(nullptr, five, {});  // 40 ms of the host
    launch(own, slot, fence, ends[i]);
    seen_before_launch[i] = seen;
    ++launched;
  }
  stop = true;
  watchdog.join();
  // Launch i comes a little after 40 (i + 1) ms; the looks are at 100, 200, ... ms.
  for (int i = 0; i < launches; ++i) {
    const int look_ms = 40 * (i + 1) / 100 * 100;
    const int expected = look_ms == 0 ? 0 : (look_ms - 1) / 40;
    CHECK(seen_before_launch[i] == expected);
  }
  for (void* end : ends) gpu.destroy_event(end);
  gpu.destroy_event(fence);
  gpu.destroy_stream(own);
  finish();
}
