#include "vgpu/standins/standin.h"

#include <exception>

#include "vgpu/device/session.h"

namespace prism::standins {

__attribute__((weak)) void on_refusal(const char*) noexcept {}

int unimplemented(const char* library, const char* function, int answer) noexcept {
  try {
    vgpu::Session::get().note_unimplemented(library, function);
  } catch (const std::exception&) {
    // Called from C: the refusal itself must still reach the caller.
  }
  if (answer != 0) on_refusal(function);
  return answer;
}

}  // namespace prism::standins
