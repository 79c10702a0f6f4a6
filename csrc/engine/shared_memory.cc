#include "engine/shared_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "engine/text.h"

namespace prism {
namespace {

[[noreturn]] void fail(const char* what, const char* step) {
  throw Error(engine::cat("shared memory for ", what, ": ", step, ": ", std::strerror(errno)));
}

}  // namespace

struct SharedMemory::Mapping {
  const int fd;
  std::size_t bytes = 0;
  void* data = MAP_FAILED;

  explicit Mapping(int descriptor) : fd(descriptor) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (data != MAP_FAILED) munmap(data, bytes);
    if (fd >= 0) close(fd);
  }
  void map(const char* what, std::size_t size) {
    bytes = size;
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) fail(what, "mapping it");
  }
};

SharedMemory SharedMemory::create(const char* name, const char* what, std::size_t bytes) {
  const auto mapping = std::make_shared<Mapping>(memfd_create(name, MFD_CLOEXEC));
  if (mapping->fd < 0) fail(what, "memfd_create");
  if (ftruncate(mapping->fd, static_cast<off_t>(bytes)) != 0) fail(what, "its size");
  mapping->map(what, bytes);
  return SharedMemory(mapping);
}

SharedMemory SharedMemory::open(int fd, const char* what, std::size_t least) {
  const auto mapping = std::make_shared<Mapping>(fd);
  struct stat status{};
  if (fstat(fd, &status) != 0) fail(what, "its descriptor");
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (bytes < least) {
    throw Error(engine::cat("the descriptor passed on is not shared memory for ", what));
  }
  mapping->map(what, bytes);
  return SharedMemory(mapping);
}

int SharedMemory::fd() const noexcept { return mapping_->fd; }
void* SharedMemory::data() const noexcept { return mapping_->data; }
std::size_t SharedMemory::bytes() const noexcept { return mapping_->bytes; }

}  // namespace prism
