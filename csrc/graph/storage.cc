#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "graph/image.h"

namespace prism {
namespace {

class Mapping final : public Storage {
 public:
  Mapping(void* address, std::size_t size) : address_(address) {
    bytes_ = {static_cast<const std::byte*>(address), size};
  }
  ~Mapping() override { ::munmap(address_, bytes_.size()); }

 private:
  void* address_;
};

class Held final : public Storage {
 public:
  explicit Held(std::vector<std::byte> bytes) : held_(std::move(bytes)) { bytes_ = held_; }

 private:
  std::vector<std::byte> held_;
};

class Taken final : public Storage {
 public:
  Taken(void* allocated, std::size_t size) : allocated_(allocated) {
    bytes_ = {static_cast<const std::byte*>(allocated), size};
  }
  ~Taken() override { std::free(allocated_); }

 private:
  void* allocated_;
};

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void cannot_open(const std::filesystem::path& path, int error) {
  throw GraphError(path.string() + ": cannot be opened: " + std::strerror(error));
}

}  // namespace

std::shared_ptr<const Storage> Storage::map(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) cannot_open(path, errno);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) cannot_open(path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw GraphFormatError(path.string() + ": is not a file, expected a .prism file");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return hold({});  // an empty mapping does not exist
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) cannot_open(path, errno);
  return std::make_shared<Mapping>(address, size);
}

std::shared_ptr<const Storage> Storage::hold(std::vector<std::byte> bytes) {
  return std::make_shared<Held>(std::move(bytes));
}

std::shared_ptr<const Storage> Storage::take(void* allocated, std::size_t size) {
  return std::make_shared<Taken>(allocated, size);
}

}  // namespace prism
