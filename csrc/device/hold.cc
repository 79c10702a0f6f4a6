#include "device/hold.h"

#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <thread>

namespace prism::device {
namespace {

constexpr std::chrono::microseconds look_again{50};

// A later number of a slot also counts: it was given out after this one had passed.
bool at_least(std::uint32_t word, std::uint32_t number) noexcept {
  return static_cast<std::int32_t>(word - number) >= 0;
}

// Called by the driver, once; it may call nothing of CUDA.
struct Told {
  std::uint32_t* word;
  std::uint32_t number;
};
void tell(void* argument) {
  const std::unique_ptr<Told> told(static_cast<Told*>(argument));
  __atomic_store_n(told->word, told->number, __ATOMIC_RELEASE);
}

}  // namespace

Holds::Holds(const Driver& driver, std::uint32_t room, const Place& place)
    : driver_(driver), slots_(room) {
  memory_.emplace(driver, room * sizeof(Words), place);
}

Holds::~Holds() {
  const auto end = std::chrono::steady_clock::now() + patience;
  bool all_passed = true;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) release({i, slots_[i].number});
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    while (!slots_[i].lost && !is_free(i) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(look_again);
    }
    all_passed = all_passed && is_free(i);
  }
  // The device may still read them.
  if (!all_passed) memory_->leave();
}

Holds::Words& Holds::words(std::uint32_t slot) const noexcept {
  return reinterpret_cast<Words*>(memory_->host())[slot];
}
Address Holds::address(std::uint32_t slot, std::size_t offset) const noexcept {
  return memory_->device() + slot * sizeof(Words) + offset;
}
bool Holds::is_free(std::uint32_t slot) const noexcept {
  return !slots_[slot].lost && passed({slot, slots_[slot].number});
}

std::optional<Holds::Ticket> Holds::take(void* stream, const Place& place) {
  if (is_capturing(driver_, stream, place)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  for (std::size_t tried = 0; tried < slots_.size(); ++tried) {
    const std::uint32_t slot = next_;
    next_ = next_ + 1 == slots_.size() ? 0 : next_ + 1;
    if (is_free(slot)) return Ticket{slot, ++slots_[slot].number};
  }
  throw DriverError("a stream cannot be held: all " + std::to_string(slots_.size()) +
                        " holds are in use" + place.text() +
                        ": hold fewer streams or ops at the same time, or make more room",
                    symbol_of(Call::wait_value32), out_of_memory, place.rank, place.op);
}

template <class Enqueue>
void Holds::enqueue(void* stream, Ticket ticket, const Place& place, const Enqueue& enqueue_hold) {
  try {
    enqueue_hold();
  } catch (...) {  // nothing waits: the slot is free again
    release(ticket);
    __atomic_store_n(&words(ticket.slot).passed, ticket.number, __ATOMIC_RELEASE);
    throw;
  }
  try {
    driver_.call<Call::write_value32>(place, stream, address(ticket.slot, offsetof(Words, passed)),
                                      ticket.number, write_default);
  } catch (...) {
    abandon(stream, ticket);
    throw;
  }
}

// The stream goes on, and tells that it has passed in another way; where that fails too, its slot
// stays taken unless the stream is seen to be empty.
void Holds::abandon(void* stream, Ticket ticket) noexcept {
  release(ticket);
  std::uint32_t* passed_word = &words(ticket.slot).passed;
  auto told = std::unique_ptr<Told>(new (std::nothrow) Told{passed_word, ticket.number});
  if (told && driver_.attempt<Call::host_function>(stream, &tell, told.get()) == success) {
    static_cast<void>(told.release());
    return;
  }
  const auto end = std::chrono::steady_clock::now() + patience;
  int result = not_ready;
  while ((result = driver_.attempt<Call::stream_query>(stream)) == not_ready &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(look_again);
  }
  if (result == success) {
    __atomic_store_n(passed_word, ticket.number, __ATOMIC_RELEASE);
  } else {
    const std::lock_guard lock(mutex_);
    slots_[ticket.slot].lost = true;
  }
}

std::optional<Holds::Ticket> Holds::hold(void* stream, const Place& place) {
  const auto ticket = take(stream, place);
  if (!ticket) return std::nullopt;
  enqueue(stream, *ticket, place, [&] {
    driver_.call<Call::wait_value32>(place, stream,
                                     address(ticket->slot, offsetof(Words, released)),
                                     ticket->number, wait_until_at_least);
  });
  return ticket;
}

std::optional<Holds::Ticket> Holds::pace(void* stream, const Kernels& kernels, const Pace& pace,
                                         const Place& place) {
  const auto ticket = take(stream, place);
  if (!ticket) return std::nullopt;
  enqueue(stream, *ticket, place, [&] {
    PaceArguments arguments;
    arguments.deadline_ns = pace.deadline_ns;
    arguments.duration_ns = pace.duration_ns;
    arguments.flag =
        reinterpret_cast<const std::uint32_t*>(address(ticket->slot, offsetof(Words, released)));
    arguments.until = ticket->number;
    arguments.load = pace.load;
    arguments.load_bytes = pace.load_bytes;
    arguments.bytes_per_second = pace.bytes_per_second;
    kernels.launch(stream, pace.grid, arguments, place);
  });
  return ticket;
}

void Holds::release(Ticket ticket) noexcept {
  // Never back: a ticket of an earlier hold of the slot does not undo a release of this one, and
  // does not release it.
  std::uint32_t* word = &words(ticket.slot).released;
  std::uint32_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!at_least(seen, ticket.number) &&
         !__atomic_compare_exchange_n(word, &seen, ticket.number, false, __ATOMIC_RELEASE,
                                      __ATOMIC_RELAXED)) {
  }
}

bool Holds::passed(Ticket ticket) const noexcept {
  return at_least(__atomic_load_n(&words(ticket.slot).passed, __ATOMIC_ACQUIRE), ticket.number);
}

std::uint32_t Holds::in_use() const {
  const std::lock_guard lock(mutex_);
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) count += is_free(i) ? 0 : 1;
  return count;
}

}  // namespace prism::device
