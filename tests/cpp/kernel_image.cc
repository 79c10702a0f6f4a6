// What the image of the kernels holds, read as the files that it is made of: ELF for each
// architecture (EM_CUDA and the SM in its flags, as LLVM's BinaryFormat/ELF.h has them), and PTX.
#include <doctest/doctest.h>
#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "device/kernels.h"
#include "driver_double.h"

namespace prism::device {
namespace {

const std::set<std::string> kernels = {"prism_pace", "prism_stamp", "prism_copy", "prism_scale",
                                       "prism_fill"};

std::string_view text_of_image() {
  const auto image = kernel_image();
  return {reinterpret_cast<const char*>(image.data()), image.size()};
}

// SM -> names of its functions.
std::map<unsigned, std::set<std::string>> binaries() {
  const std::string_view image = text_of_image();
  std::map<unsigned, std::set<std::string>> found;
  for (std::size_t at = image.find(ELFMAG); at != image.npos; at = image.find(ELFMAG, at + 4)) {
    Elf64_Ehdr header;
    if (image.size() - at < sizeof(header)) break;
    std::memcpy(&header, image.data() + at, sizeof(header));
    if (header.e_machine != EM_CUDA) continue;
    const unsigned low = header.e_flags & 0xff, high = header.e_flags >> 8 & 0xff;
    auto& names = found[header.e_ident[EI_ABIVERSION] >= 8 ? high : low];
    std::vector<Elf64_Shdr> sections(header.e_shnum);
    REQUIRE(image.size() - at >= header.e_shoff + sections.size() * sizeof(Elf64_Shdr));
    std::memcpy(sections.data(), image.data() + at + header.e_shoff,
                sections.size() * sizeof(Elf64_Shdr));
    for (const Elf64_Shdr& section : sections) {
      if (section.sh_type != SHT_SYMTAB) continue;
      const char* strings = image.data() + at + sections.at(section.sh_link).sh_offset;
      for (std::size_t i = 0; i < section.sh_size / sizeof(Elf64_Sym); ++i) {
        Elf64_Sym symbol;
        std::memcpy(&symbol, image.data() + at + section.sh_offset + i * sizeof(symbol),
                    sizeof(symbol));
        if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) names.insert(strings + symbol.st_name);
      }
    }
  }
  return found;
}

TEST_CASE("the image holds every kernel for every architecture, and PTX for later ones" *
          doctest::skip(kernel_image().empty())) {
  const auto found = binaries();
  CHECK(found.size() == 3);
  for (const unsigned sm : {80U, 90U, 100U}) {
    REQUIRE_MESSAGE(found.contains(sm), sm);
    CHECK_MESSAGE(
        std::includes(found.at(sm).begin(), found.at(sm).end(), kernels.begin(), kernels.end()),
        sm);
  }
  const std::string_view image = text_of_image();
  CHECK(image.find(".target sm_80") != image.npos);
  for (const std::string& name : kernels) {
    CHECK_MESSAGE(image.find(".visible .entry " + name + "(") != image.npos, name);
  }
}

TEST_CASE("kernels load through the driver, or say that there are none") {
  const DriverDouble the;
  const Place place{1, 2};
  const Context context(the.driver, 0, place);
  const Current current(the.driver, context, place);
  if (kernel_image().empty()) {
    CHECK_THROWS_WITH_AS(Kernels(the.driver, kernel_image(), place),
                         doctest::Contains("built without nvcc"), DriverError);
  } else {
    const Kernels loaded(the.driver, kernel_image(), place);
    const auto names = the.names();
    CHECK(std::count(names.begin(), names.end(), "cuModuleGetFunction") == 5);
  }
}

}  // namespace
}  // namespace prism::device
