// Memory that processes share: a memfd, which the processes inherit or are sent, so that nothing is
// left behind however they end.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace prism {

class SharedMemory {
 public:
  // Zeros. name: of the memfd; what: it is for, in errors. Error where the system gives none.
  static SharedMemory create(const char* name, const char* what, std::size_t bytes);
  // What another process created, by the descriptor it passed on, which is closed with this.
  // Error: no such memory, or less of it than `least`.
  static SharedMemory open(int fd, const char* what, std::size_t least);

  int fd() const noexcept;  // closed with the last copy of this
  void* data() const noexcept;
  std::size_t bytes() const noexcept;

 private:
  struct Mapping;
  explicit SharedMemory(std::shared_ptr<const Mapping> mapping) : mapping_(std::move(mapping)) {}

  std::shared_ptr<const Mapping> mapping_;
};

}  // namespace prism
