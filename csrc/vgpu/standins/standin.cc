#include "vgpu/standins/standin.h"

#include <exception>

#include "vgpu/device/session.h"

namespace prism::standins {

int unimplemented(const char* library, const char* function, int answer) noexcept {
  try {
    vgpu::Session::get().note_unimplemented(library, function);
  } catch (const std::exception&) {
    // Called from C: the refusal itself must still reach the caller.
  }
  return answer;
}

}  // namespace prism::standins
