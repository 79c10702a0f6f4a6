#include "device/cupti/thread_names.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

namespace prism::device::cupti {
namespace {

bool named_as_program_thread(std::uint32_t thread) noexcept {
  char path[48];
  std::snprintf(path, sizeof path, "/proc/self/task/%u/comm", thread);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return true;
  char name[32] = {};
  const ssize_t length = read(file, name, sizeof name - 1);
  close(file);
  const std::string_view text(name, length > 0 ? static_cast<std::size_t>(length) : 0);
  for (const std::string_view other : {"pt_nccl_", "pt_data_pin", "NCCL "}) {
    if (text.starts_with(other)) return false;
  }
  return true;
}

}  // namespace

void ThreadNames::see(std::uint32_t thread) {
  if (thread == last_) return;
  last_ = thread;
  const auto [found, added] = program_.try_emplace(thread, true);
  if (added) found->second = named_as_program_thread(thread);
}

bool ThreadNames::is_program_thread(std::uint32_t thread) const noexcept {
  const auto found = program_.find(thread);
  return found == program_.end() || found->second;
}

}  // namespace prism::device::cupti
