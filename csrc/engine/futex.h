// To sleep until another thread or process says so (Linux), and to spin meanwhile.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace prism {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// Of memory that processes share. Returns on a wake, where `word` is not `seen`, or after
// `longest`.
inline void futex_sleep(std::atomic<std::uint32_t>& word, std::uint32_t seen,
                        std::chrono::nanoseconds longest) noexcept {
  const timespec time{longest.count() / 1'000'000'000, longest.count() % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

inline void futex_wake(std::atomic<std::uint32_t>& word, int most) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE, most, nullptr, nullptr, 0);
}

inline void spin_once() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace prism
