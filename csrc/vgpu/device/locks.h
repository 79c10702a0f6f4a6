// The locks of a rank process, and the order in which its threads take them.
//
// Threads: the program's (one at a time calls in, as a rule); torch's own, which poll; and, in an
// emulation, the device's: it alone runs the moves there, and never ends. A move may be a user's
// rule, which is Python, so the device's thread needs the interpreter. In a collection moves run on
// the program's thread that looks at what they write.
//
// From the outermost to the innermost; whoever holds one takes only those below it:
//  1. what the caller brings: the interpreter, torch's allocator. Nothing of ours is held by a
//     thread that runs a move or asks for the members of a communicator.
//  2. the right to run moves (Impl::mover; of the device's thread for ever in an emulation)
//  3. the program's lock: one call of the program at a time, over the wait for the engine's answer.
//     A thread that runs a move does without.
//  4. the state: for short; nobody waits for another thread or process while holding it, but for
//     room in the port, which the engine always makes.
//  5. those of the exchange and of the NCCL door: nothing is taken under them.
// Waits without an end of their own are three: for the program's lock, for moves, for the engine.
// All of them let the interpreter go (LetGo) where rules may run. Whoever waits for it again then
// holds at most the program's lock, which is waited for without it.
//
// A rank that fails (Session::detach) ends all of this: the engine's answer comes at once, no move
// runs any more, whoever waits for one waits until the process ends, and the thread that failed
// waits for none. A fork takes the state alone, and its child has no device: it waits for no move.
#pragma once

#include <mutex>

namespace prism::vgpu {

// The interpreter of the process, if it has one; the core knows no Python.
struct Interpreter {
  void* (*let_go)() = nullptr;  // nullptr: the calling thread does not hold it
  void (*take_again)(void*) = nullptr;
};
// From here on whoever waits lets it go. Before moves that need it.
void share_interpreter(const Interpreter& interpreter) noexcept;

// For the time of a wait. The state is not held where it begins and where it ends.
class LetGo {
 public:
  LetGo();
  ~LetGo();
  LetGo(const LetGo&) = delete;
  LetGo& operator=(const LetGo&) = delete;

 private:
  void* held_;
};

// The calling thread runs a move: what it calls is not the program's, and is recorded nowhere.
bool in_move() noexcept;
class InMove {
 public:
  InMove() noexcept;
  ~InMove();
  InMove(const InMove&) = delete;
  InMove& operator=(const InMove&) = delete;

 private:
  bool before_;
};

// Over a session's state, in two parts: 3 and 4 of the above. While a call of the program waits for
// the engine it lets the state go, so that moves go on; no other call of the program comes between.
class SessionMutex {
 public:
  void lock() {
    if (!in_move()) lock_program();
    state.lock();
  }
  void unlock() {
    state.unlock();
    if (!in_move()) program_.unlock();
  }

  // Both parts in a move too: for the end of a rank, which waits for the call that is under way.
  class Whole {
   public:
    explicit Whole(SessionMutex& mutex) : mutex_(mutex) {
      mutex_.lock_program();
      mutex_.state.lock();
    }
    ~Whole() {
      mutex_.state.unlock();
      mutex_.program_.unlock();
    }
    Whole(const Whole&) = delete;
    Whole& operator=(const Whole&) = delete;

   private:
    SessionMutex& mutex_;
  };

  std::mutex state;

 private:
  void lock_program() {
    if (program_.try_lock()) return;
    const LetGo interpreter;
    program_.lock();
  }

  std::mutex program_;
};

}  // namespace prism::vgpu
