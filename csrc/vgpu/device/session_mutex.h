// The lock over a session's state, in two parts. The program's calls take both. While one of them
// waits for the engine of an emulation it lets the state go, so that queued moves of bytes, which
// need the state alone, go on; no other call of the program comes between.
#pragma once

#include <mutex>

namespace prism::vgpu {

class SessionMutex {
 public:
  void lock() {
    program_.lock();
    state.lock();
  }
  void unlock() {
    state.unlock();
    program_.unlock();
  }

  std::mutex state;

 private:
  std::mutex program_;
};

}  // namespace prism::vgpu
