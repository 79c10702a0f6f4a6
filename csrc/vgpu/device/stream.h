// Streams and events of the virtual GPU, and the byte-moving work that waits in them. Not
// thread-safe: Session serialises.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "vgpu/device/company.h"
#include "vgpu/device/ranges.h"

namespace prism::vgpu {

struct Stream;

// Work that moves bytes, in stream order, run when the host looks. Or, with `run` empty, the
// place where a stream waits for another one's move.
struct Move {
  std::function<void()> run{};
  std::function<Lacks()> step{};  // in place of `run`: may lack bytes of another process
  Lacks lacks{};                  // at its last step
  Stream* wait_stream = nullptr;
  std::uint64_t wait_move = 0;
  // Device ranges it reads or writes; nullopt: not known, maybe all.
  std::optional<std::vector<Range>> touches{};
  bool runs = false;  // now: it stays in its queue, for those who look at what touches a range
};

// Moves are counted from 1; those up to `done` have run.
struct MoveQueue {
  std::deque<Move> moves;
  std::uint64_t issued = 0, done = 0;
  bool idle() const noexcept { return issued == done; }
  bool is_done(std::uint64_t move) const noexcept { return move <= done; }
};
// The move that those of `stream` come behind: its first, or the first of whom that waits for.
// nullptr: none.
const Move* first_behind(const Stream& stream) noexcept;

struct Stream {
  static constexpr std::uint32_t alive = 0x5354524d;
  static constexpr std::uint16_t unused = 0xffff;
  std::uint32_t magic = 0;
  std::uint32_t flags = 0;
  std::int32_t priority = 0;
  std::int32_t device = 0;
  std::uint16_t index = unused;  // of the recorded rank, in order of first use
  std::uint64_t work = 0;        // operations so far
  std::uint64_t followed = 0;    // blocking streams: how many of these the default stream followed
  std::uint64_t default_work = 0;  // and how many of the default stream's it followed itself
  // Torch makes a stream of its own wait for the program's before it communicates there, and then
  // records the end event. A launch on the program's own stream keeps no tensors.
  bool waited = false;        // since its last kernel or communication
  bool communicated = false;  // communication behind a wait, its end not recorded yet
  MoveQueue queue;

  // Reused: the queue keeps counting, because events of the stream before may still ask it.
  void begin() noexcept {
    flags = 0;
    priority = device = 0;
    index = unused;
    work = followed = default_work = 0;
    waited = communicated = false;
  }
  bool is_blocking() const noexcept { return (flags & 1) == 0; }
};

struct Event {
  static constexpr std::uint32_t alive = 0x45564e54;
  // What torch's watchdog sees of it (watchdog.h): complete as all else; not yet complete;
  // complete, and the program waits until it saw so; it was told.
  enum class Watch : std::uint8_t { none, hidden, shown, told };
  std::uint32_t magic = 0;
  bool timed = true;
  bool recorded = false;
  Watch watch = Watch::none;
  std::uint16_t stream = 0;     // index it was recorded on
  std::uint32_t record = 0;     // how many records that stream had, this one included
  std::int64_t time_ns = 0;     // stream clock at the record: what waits and synchronise see
  std::int64_t reached_ns = 0;  // not before the host asked for it: what elapsed time sees
  Stream* queue = nullptr;      // moves before it
  std::uint64_t move = 0;

  void begin() noexcept { *this = Event{}; }
};

// Objects with stable addresses that are handed out as handles and reused. A handle that is not
// alive is refused, not followed.
template <class T>
class HandleTable {
 public:
  T& create() {
    if (free_.empty()) {
      objects_.emplace_back();
      free_.push_back(&objects_.back());
    }
    T* object = free_.back();
    free_.pop_back();
    object->begin();
    object->magic = T::alive;
    return *object;
  }
  void destroy(T& object) {
    object.magic = 0;
    free_.push_back(&object);
  }
  static T* find(void* handle) noexcept {
    T* object = static_cast<T*>(handle);
    return object != nullptr && object->magic == T::alive ? object : nullptr;
  }
  template <class F>
  void for_each(F&& visit) {
    for (T& object : objects_) {
      if (object.magic == T::alive) visit(object);
    }
  }

 private:
  std::deque<T> objects_;
  std::vector<T*> free_;
};

}  // namespace prism::vgpu
