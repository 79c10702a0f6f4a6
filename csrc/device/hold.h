// Streams held without blocking the host: what is enqueued behind a hold waits until it is
// released, by a wait of the stream for a word of mapped memory, or by the pacing kernel, which
// occupies as many SMs as it is given blocks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "device/kernels.h"
#include "device/resource.h"

namespace prism::device {

// A hold by the kernel: whichever comes first of these and the release ends it.
struct Pace {
  Grid grid;                                   // blocks: SMs that it occupies
  std::uint64_t deadline_ns = no_deadline_ns;  // by the device's %globaltimer
  std::uint64_t duration_ns = no_deadline_ns;  // from its start
  unsigned char* load = nullptr;               // device memory that it reads and writes meanwhile
  std::uint64_t load_bytes = 0;
  std::uint64_t bytes_per_second = 0;  // of each block
};

class Holds {
 public:
  struct Ticket {
    std::uint32_t slot = 0;
    std::uint32_t number = 0;
  };

  // room: holds at the same time, not yet passed by their streams. In the current context, of which
  // the driver and the kernels outlive this.
  Holds(const Driver& driver, std::uint32_t room, const Place& place);
  // Releases every stream and waits for them to go on, for so long as `patience` at most; the words
  // of streams that something else still stops are left to the context.
  ~Holds();
  Holds(const Holds&) = delete;
  Holds& operator=(const Holds&) = delete;

  // Any thread whose current context is this one's. Nothing: the stream is being captured, and
  // nothing was done to it, as a hold would be part of every later launch of the graph.
  std::optional<Ticket> hold(void* stream, const Place& place);
  std::optional<Ticket> pace(void* stream, const Kernels& kernels, const Pace& pace,
                             const Place& place);

  // Any thread, no call of the driver, any number of times, also after the stream has passed.
  void release(Ticket ticket) noexcept;
  // The stream has gone on past the hold.
  bool passed(Ticket ticket) const noexcept;
  // Holds that their streams have not passed.
  std::uint32_t in_use() const;

  std::chrono::milliseconds patience{200};

 private:
  // On a line of its own in mapped memory, so that no two streams share one.
  struct alignas(64) Words {
    std::uint32_t released;  // by the host
    std::uint32_t passed;    // by the device
  };
  struct Slot {
    std::uint32_t number = 0;  // of its newest hold
    bool lost = false;         // its stream will not tell that it passed
  };

  std::optional<Ticket> take(void* stream, const Place& place);
  // Tells the host that the stream has passed; what fails before or here frees the stream.
  template <class Enqueue>
  void enqueue(void* stream, Ticket ticket, const Place& place, const Enqueue& enqueue_hold);
  void abandon(void* stream, Ticket ticket) noexcept;
  Words& words(std::uint32_t slot) const noexcept;
  Address address(std::uint32_t slot, std::size_t offset) const noexcept;
  bool is_free(std::uint32_t slot) const noexcept;

  const Driver& driver_;
  mutable std::mutex mutex_;
  std::vector<Slot> slots_;
  std::uint32_t next_ = 0;  // where the search for a free slot begins
  std::optional<Mapped> memory_;
};

}  // namespace prism::device
