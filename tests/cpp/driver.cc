#include "device/driver.h"

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <string>

#include "device/kernels/arguments.h"
#include "device/resource.h"
#include "driver_double.h"

namespace prism::device {
namespace {

const Place place{3, 17};

DriverError error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const DriverError& error) {
    return error;
  }
  FAIL("no DriverError");
  return {"", "", 0, 0, 0};
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Every entry of the table once, with everything that it takes.
void call_everything(const Driver& driver) {
  int number = 0;
  driver.call<Call::driver_version>(place, &number);
  driver.call<Call::device_count>(place, &number);
  const Context context(driver, 0, place);
  const Current current(driver, context, place);
  void* now = nullptr;
  driver.call<Call::context_current>(place, &now);
  CHECK(now == context.get());
  const int sms = context.attribute(sm_count, place);
  CHECK(sms == 132);
  std::size_t free_bytes = 0, total = 0;
  driver.call<Call::memory_info>(place, &free_bytes, &total);
  const DeviceMemory first = make_memory(driver, 256, place);
  const DeviceMemory second = make_memory(driver, 256, place);
  const Mapped mapped(driver, 64, place);
  const Stream stream = make_stream(driver, place);
  const Event from = make_event(driver, 0, place), to = make_event(driver, 0, place);
  const bool captured = is_capturing(driver, stream.get(), place);
  CHECK(!captured);
  driver.call<Call::event_record>(place, from.get(), stream.get());
  driver.call<Call::set_bytes>(place, first.get(), static_cast<unsigned char>(7), 256UL,
                               stream.get());
  driver.call<Call::copy_on_device>(place, second.get(), first.get(), 256UL, stream.get());
  char bytes[256] = {};
  driver.call<Call::copy_to_host>(place, bytes, second.get(), 256UL, stream.get());
  driver.call<Call::copy_to_device>(place, first.get(), bytes, 256UL, stream.get());
  driver.call<Call::write_value32>(place, stream.get(), mapped.device(), 5U, write_default);
  driver.call<Call::write_value64>(place, stream.get(), mapped.device() + 8, 6UL, write_default);
  driver.call<Call::wait_value32>(place, stream.get(), mapped.device(), 5U, wait_until_at_least);
  driver.call<Call::wait_value64>(place, stream.get(), mapped.device() + 8, 6UL,
                                  wait_until_at_least);
  driver.call<Call::host_function>(
      place, stream.get(), +[](void* at) { *static_cast<int*>(at) = 9; }, &number);
  void* module = nullptr;
  driver.call<Call::module_load>(place, &module, "image");
  const Module owned(driver, module);
  void* pace = nullptr;
  driver.call<Call::module_function>(place, &pace, module, "prism_pace");
  PaceArguments arguments;
  arguments.duration_ns = 2'000'000;
  void* parameters[] = {&arguments};
  driver.call<Call::launch>(place, pace, 1U, 1U, 1U, 32U, 1U, 1U, 0U, stream.get(), parameters,
                            nullptr);
  driver.call<Call::event_record>(place, to.get(), stream.get());
  driver.call<Call::stream_wait_event>(place, stream.get(), to.get(), 0U);
  const bool empty = driver.ready<Call::stream_query>(place, stream.get());
  CHECK(!empty);
  const bool reached = driver.ready<Call::event_query>(place, to.get());
  CHECK(!reached);
  driver.call<Call::event_synchronize>(place, to.get());
  driver.call<Call::stream_synchronize>(place, stream.get());
  float ms = 0;
  driver.call<Call::event_elapsed>(place, &ms, from.get(), to.get());
  CHECK(ms == doctest::Approx(2.0));
  CHECK(bytes[255] == 7);
  CHECK(number == 9);
  int state = -1;
  LockArguments lock;
  driver.call<Call::process_lock>(place, 42, &lock);
  driver.call<Call::process_checkpoint>(place, 42, nullptr);
  driver.call<Call::process_state>(place, 42, &state);
  CHECK(state == process_checkpointed);
  driver.call<Call::process_restore>(place, 42, nullptr);
  driver.call<Call::process_unlock>(place, 42, nullptr);
}

TEST_CASE("every entry of the table is found and does its work") {
  const DriverDouble the;
  call_everything(the.driver);
  CHECK(the.open() == 0);
  CHECK(the.driver.version() == 13000);
}

TEST_CASE("an error of every call is told with call, code, rank and op, and nothing stays taken") {
  const DriverDouble the;
  const auto everything = [&the] { call_everything(the.driver); };
  const auto failures = the.fail_each(out_of_memory, everything, [&](const std::string& name) {
    const DriverError error = error_of(everything);
    CHECK(holds(error.call, name));
    CHECK(error.code == out_of_memory);
    CHECK(error.rank == 3);
    CHECK(error.op == 17);
    CHECK(holds(error.what(), name));
    CHECK(holds(error.what(),
                ": CUDA_ERROR_OUT_OF_MEMORY (2), rank 3, op 17: free memory on the "
                "device, or put fewer ranks on it"));
    CHECK(the.open() == 0);
  });
  CHECK(failures > static_cast<std::size_t>(Call::count) - 10);
}

TEST_CASE("a driver without a call says so when the call is used") {
  const DriverDouble the(PRISM_DOUBLE_DRIVER_OLD);
  CHECK(!the.driver.has(Call::process_lock));
  CHECK(the.driver.attempt<Call::process_lock>(1, nullptr) == not_found);
  const DriverError error =
      error_of([&] { the.driver.call<Call::process_lock>(place, 1, nullptr); });
  CHECK(holds(error.what(), "cuCheckpointProcessLock: not in "));
  CHECK(
      holds(error.what(), "a driver of CUDA 12.4, rank 3, op 17: it needs a driver of CUDA 12.8"));
}

TEST_CASE("a driver that is not there") {
  const DriverError error = error_of([] { Driver("libcuda-that-is-not-there.so"); });
  CHECK(error.call == "dlopen");
  CHECK(error.code == -1);
  CHECK(holds(error.what(), "libcuda-that-is-not-there.so"));
  CHECK(holds(error.what(), "--device virtual:PROFILE"));
}

TEST_CASE("a wait for a value holds its stream, and no other, until the word is written") {
  const DriverDouble the;
  const Driver& driver = the.driver;
  const Context context(driver, 0, place);
  const Current current(driver, context, place);
  const Mapped mapped(driver, 64, place);
  auto* word = reinterpret_cast<std::uint32_t*>(mapped.host());
  const Stream held = make_stream(driver, place), other = make_stream(driver, place);
  driver.call<Call::wait_value32>(place, held.get(), mapped.device(), 1U, wait_until_at_least);
  driver.call<Call::write_value32>(place, held.get(), mapped.device() + 4, 8U, write_default);
  driver.call<Call::write_value32>(place, other.get(), mapped.device() + 8, 9U, write_default);
  the.advance(1'000'000'000);
  CHECK(the.pending(held.get()) == 2);
  CHECK(word[1] == 0);
  CHECK(word[2] == 9);
  __atomic_store_n(word, 1U, __ATOMIC_RELEASE);
  CHECK(the.pending(held.get()) == 0);
  CHECK(word[1] == 8);
}

}  // namespace
}  // namespace prism::device
