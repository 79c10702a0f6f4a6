#include "vgpu/device/locks.h"

#include <atomic>
#include <utility>

namespace prism::vgpu {
namespace {

Interpreter interpreter_;
std::atomic<bool> shared_{false};
thread_local bool in_move_ = false;

}  // namespace

void share_interpreter(const Interpreter& interpreter) noexcept {
  interpreter_ = interpreter;
  shared_.store(true, std::memory_order_release);
}

LetGo::LetGo() : held_(shared_.load(std::memory_order_acquire) ? interpreter_.let_go() : nullptr) {}

LetGo::~LetGo() {
  if (held_ != nullptr) interpreter_.take_again(held_);
}

bool in_move() noexcept { return in_move_; }
InMove::InMove() noexcept : before_(std::exchange(in_move_, true)) {}
InMove::~InMove() { in_move_ = before_; }

}  // namespace prism::vgpu
