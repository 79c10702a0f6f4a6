// One TCP connection between two machines of an emulation: whole frames, both ways. Any thread may
// send; one receives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace prism {

enum class FrameKind : std::uint32_t {
  posts = 1,   // of port `number`
  answer = 2,  // to port `number`: 8 bytes
  text = 3,
};

struct Frame {
  FrameKind kind = FrameKind::text;
  std::uint32_t number = 0;
  std::vector<std::byte> data;
};

class Connection {
 public:
  explicit Connection(int fd);  // a connected stream socket; closed with this
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  // False once the other side is gone.
  bool send(FrameKind kind, std::uint32_t number, std::span<const std::byte> data);
  bool send_text(std::string_view text);
  // False at the end of the connection, and where what comes is no frame.
  bool receive(Frame& frame);
  // Ends it: whoever receives, here or there, is told so. Safe from any thread.
  void end() noexcept;

 private:
  bool read(void* to, std::size_t bytes) noexcept;

  const int fd_;
  std::mutex sending_;
};

}  // namespace prism
