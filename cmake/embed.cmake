# cmake -D IMAGE=FILE -D SOURCE=FILE -P embed.cmake: the bytes of an image as a source of the core.
file(READ ${IMAGE} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${SOURCE} "// Made by cmake/embed.cmake from csrc/device/kernels.
#include \"device/kernels.h\"

namespace prism::device {
namespace {
alignas(16) constexpr unsigned char image[] = {
${bytes}
};
}  // namespace
std::span<const std::byte> kernel_image() noexcept { return std::as_bytes(std::span(image)); }
}  // namespace prism::device
")
