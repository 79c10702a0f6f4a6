#include "engine/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace prism {
namespace {

constexpr std::uint64_t largest = std::uint64_t{64} << 20;

struct Head {
  std::uint32_t kind = 0, number = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(Head) == 16);

}  // namespace

Connection::Connection(int fd) : fd_(fd) {
  int kind = 0;
  socklen_t size = sizeof kind;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &size) != 0 || kind != SOCK_STREAM) {
    throw Error("the descriptor passed on is not a connected stream socket");
  }
  // Not of a socket pair, as in tests: there these calls fail, and nothing is lost.
  const auto set = [fd](int level, int option, int value) {
    setsockopt(fd, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);  // an answer is waited for
  // A machine that has gone without a word is noticed within two minutes.
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 6);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 90'000);
}

Connection::~Connection() { close(fd_); }

void Connection::end() noexcept { shutdown(fd_, SHUT_RDWR); }

bool Connection::send(FrameKind kind, std::uint32_t number, std::span<const std::byte> data) {
  Head head{static_cast<std::uint32_t>(kind), number, data.size()};
  std::array<iovec, 2> parts{
      {{&head, sizeof head}, {const_cast<std::byte*>(data.data()), data.size()}}};
  const std::lock_guard lock(sending_);
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  while (message.msg_iovlen != 0) {
    const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    auto left = static_cast<std::size_t>(sent);
    while (message.msg_iovlen != 0 && left >= message.msg_iov->iov_len) {
      left -= message.msg_iov->iov_len;
      ++message.msg_iov;
      --message.msg_iovlen;
    }
    if (message.msg_iovlen == 0) break;
    message.msg_iov->iov_base = static_cast<std::byte*>(message.msg_iov->iov_base) + left;
    message.msg_iov->iov_len -= left;
  }
  return true;
}

bool Connection::send_text(std::string_view text) {
  return send(FrameKind::text, 0, std::as_bytes(std::span(text)));
}

bool Connection::read(void* to, std::size_t bytes) noexcept {
  auto* at = static_cast<std::byte*>(to);
  while (bytes != 0) {
    const ssize_t got = recv(fd_, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool Connection::receive(Frame& frame) {
  Head head;
  if (!read(&head, sizeof head)) return false;
  if (head.kind < 1 || head.kind > 3 || head.bytes > largest) return false;
  frame.kind = static_cast<FrameKind>(head.kind);
  frame.number = head.number;
  frame.data.resize(head.bytes);
  return read(frame.data.data(), frame.data.size());
}

}  // namespace prism
