#include "intercept/failure.h"

#include <mutex>
#include <utility>

namespace prism::intercept {

namespace {
std::mutex mutex;
std::string last;
}  // namespace

abi::nccl::Result fail(abi::nccl::Result result, std::string message) noexcept {
  const std::lock_guard lock(mutex);
  last = std::move(message);
  return result;
}

const char* last_failure() noexcept {
  thread_local std::string copy;
  const std::lock_guard lock(mutex);
  try {
    copy = last;
  } catch (const std::bad_alloc&) {
    return "";
  }
  return copy.c_str();
}

}  // namespace prism::intercept
