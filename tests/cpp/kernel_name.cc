#include "cost/kernel_name.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

using namespace prism;

namespace {

// CUDAFunctor_add<c10::BFloat16> over three tensors, as torch 2.14 registers and c++filt spells it.
constexpr std::string_view mangled =
    "_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_15CUDAFunctor_"
    "addIN3c108BFloat16EEESt5arrayIPcLm"
    "3EELb0EEEviT0_T1_";
constexpr std::string_view spelled =
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul>, false>(int, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul>)";

}  // namespace

TEST_CASE("mangled and spelled names give the same parts") {
  for (const std::string_view text : {mangled, spelled}) {
    const KernelName name(text);
    REQUIRE(name.parsed());
    CHECK(name.base() == "vectorized_elementwise_kernel");
    REQUIRE(name.root().arguments.size() == 4);
    CHECK(name.number(0, -1) == 8);
    CHECK(name.argument(1)->text == "CUDAFunctor_add");
    CHECK(name.argument(*name.argument(1), 0)->dtype == DataType::bfloat16);
    CHECK(name.argument(*name.argument(2), 0)->kind == NameNode::Kind::pointer);
    CHECK(name.argument(*name.argument(2), 1)->value == 3);
    CHECK(name.number(3, -1) == 0);
    CHECK(name.number(4, -1) == -1);
    REQUIRE(name.parameters().size() == 3);
    CHECK(name[name.parameters()[0]].dtype == DataType::int32);
  }
}

TEST_CASE("substitutions name what stood before, not what it stood in") {
  // g<A<int>, A<int>*>(A<int>*): S_ is A, S0_ is A<int>, S1_ its pointer.
  const KernelName name("_Z1gI1AIiEPS1_EvT0_");
  REQUIRE(name.parsed());
  CHECK(name.base() == "g");
  CHECK(name.argument(0)->text == "A");
  REQUIRE(name.argument(1)->kind == NameNode::Kind::pointer);
  CHECK(name.argument(*name.argument(1), 0)->text == "A");
}

TEST_CASE("lambdas keep their parameters and what they stand in") {
  // f<outer(int)::{lambda(float, bool)#1}>()
  const KernelName name("_Z1fIZ5outeriEUlfbE_EvT_");
  REQUIRE(name.parsed());
  const NameNode& lambda = *name.argument(0);
  CHECK(lambda.kind == NameNode::Kind::lambda);
  REQUIRE(lambda.arguments.size() == 2);
  CHECK(name[lambda.arguments[0]].dtype == DataType::float32);
  CHECK(name[lambda.arguments[1]].text == "bool");
  CHECK(name.within(lambda, "outer"));
  CHECK_FALSE(name.within(lambda, "f"));
}

TEST_CASE("types know their size") {
  const KernelName name(
      "void f<c10::Half, double, c10::complex<float>, at::native::OpaqueType<8>, unsigned char, "
      "int const*, (Mode)2, -3, true>(int)");
  REQUIRE(name.root().arguments.size() == 9);
  const std::uint32_t bytes[] = {2, 8, 8, 8, 1};
  for (std::size_t i = 0; i < 5; ++i) CHECK(name.argument(i)->bytes == bytes[i]);
  CHECK(name.argument(5)->kind == NameNode::Kind::pointer);
  CHECK(name.number(6, 0) == 2);
  CHECK(name.number(7, 0) == -3);
  CHECK(name.number(8, 0) == 1);
}

TEST_CASE("substitutions that double are not expanded") {
  // Each type holds the last one twice: 2^4000 leaves if it were written out.
  std::string text = "_Z1f1A1BIS_S_E";
  const std::string digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const auto id = [&](std::size_t i) {
    std::string number;
    if (i == 0) return std::string("S_");
    --i;
    do {
      number.insert(number.begin(), digits[i % 36]);
      i /= 36;
    } while (i > 0);
    return "S" + number + "_";
  };
  for (std::size_t i = 2; i < 4000; ++i) text += id(1) + "I" + id(i) + id(i) + "E";
  const KernelName name(text);
  CHECK(name.base() == "f");
  CHECK(name.parameters().size() == 4000);
}

TEST_CASE("no bytes make the parsers fail") {
  CHECK_FALSE(KernelName("").parsed());
  CHECK_FALSE(KernelName("_Z").parsed());
  CHECK_FALSE(KernelName("_ZN").parsed());
  CHECK_FALSE(KernelName("_Z99f").parsed());
  CHECK_FALSE(KernelName(std::string(KernelName::max_length + 1, 'a')).parsed());
  KernelName(std::string("_Z1f") + std::string(60000, 'P') + "i");
  KernelName(std::string(60000, '<'));
  KernelName("f" + std::string(60000, '<'));
  KernelName("f<" + std::string(30000, '(') + std::string(30000, ')') + ">");

  // Every prefix of a real name, and real names with bytes exchanged.
  std::mt19937 random(7);
  for (const std::string_view real : {mangled, spelled}) {
    for (std::size_t i = 0; i <= real.size(); ++i) KernelName(std::string(real.substr(0, i)));
    for (int trial = 0; trial < 2000; ++trial) {
      std::string text(real);
      for (int change = 0; change < 3; ++change) {
        text[random() % text.size()] =
            change == 0 ? static_cast<char>(random() % 256) : real[random() % real.size()];
      }
      const KernelName name(text);
      CHECK(name.base().size() <= text.size());
    }
  }
}
