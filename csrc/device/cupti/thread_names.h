// Which threads are the program's. Those of torch's process groups (watchdog, heartbeat), of a
// loader that pins batches, and of NCCL are not, by their names.
#pragma once

#include <cstdint>
#include <unordered_map>

namespace prism::device::cupti {

class ThreadNames {
 public:
  // While the thread may still live; it is looked at once.
  void see(std::uint32_t thread);
  // True where it was never seen, or had ended by then.
  bool is_program_thread(std::uint32_t thread) const noexcept;

 private:
  std::unordered_map<std::uint32_t, bool> program_;
  std::uint32_t last_ = 0;
};

}  // namespace prism::device::cupti
