#include "intercept/combine.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

using namespace prism::intercept;
using prism::DataType;
using prism::Reduction;
using prism::size_of;

namespace {

constexpr DataType types[] = {DataType::int8,     DataType::uint8,      DataType::int32,
                              DataType::uint32,   DataType::int64,      DataType::uint64,
                              DataType::float16,  DataType::float32,    DataType::float64,
                              DataType::bfloat16, DataType::float8e4m3, DataType::float8e5m2};
constexpr Reduction reductions[] = {Reduction::sum, Reduction::prod, Reduction::max,
                                    Reduction::min, Reduction::avg,  Reduction::premul_sum};

std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

template <class T>
std::vector<T> combined(DataType dtype, Reduction op, const std::vector<std::vector<T>>& inputs,
                        const std::vector<std::uint32_t>& weights) {
  UniformReduction reduction;
  reduction.dtype = dtype;
  reduction.op = op;
  reduction.ranks = 0;
  for (const std::uint32_t weight : weights) reduction.ranks += weight;
  std::vector<const std::byte*> data;
  for (const auto& input : inputs) data.push_back(reinterpret_cast<const std::byte*>(input.data()));
  std::vector<T> out(inputs[0].size());
  combine(reduction, data, weights, reinterpret_cast<std::byte*>(out.data()),
          static_cast<std::int64_t>(out.size()));
  return out;
}

}  // namespace

TEST_CASE("one input that counts for all gives the uniform contract byte for byte") {
  constexpr std::int64_t count = 500;
  for (const DataType dtype : types) {
    for (const Reduction op : reductions) {
      CAPTURE(name(dtype));
      CAPTURE(static_cast<int>(op));
      UniformReduction reduction;
      reduction.dtype = dtype;
      reduction.op = op;
      reduction.ranks = 7;
      const auto scalar = random_bytes(8, 5);
      std::memcpy(reduction.scalar.data(), scalar.data(), 8);
      auto data = random_bytes(static_cast<std::size_t>(count) * size_of(dtype), 11);
      std::vector<std::byte> want(data.size()), found(data.size());
      reduce_uniform(reduction, data.data(), want.data(), count);
      premultiply(reduction, data.data(), count);
      const std::byte* inputs[] = {data.data()};
      const std::uint32_t weights[] = {7};
      combine(reduction, inputs, weights, found.data(), count);
      CHECK(found == want);
    }
  }
}

TEST_CASE("integers wrap, averages go towards zero") {
  using Lists = std::vector<std::vector<std::int8_t>>;
  const Lists in{{100, -3, 5, -128}, {100, 1, -4, -1}};
  using List = std::vector<std::int8_t>;
  CHECK(combined<std::int8_t>(DataType::int8, Reduction::sum, in, {1, 2}) == List{44, -1, -3, 126});
  CHECK(combined<std::int8_t>(DataType::int8, Reduction::avg, in, {1, 2}) == List{14, 0, -1, 42});
  CHECK(combined<std::int8_t>(DataType::int8, Reduction::prod, in, {1, 2}) ==
        List{64, -3, 80, -128});
  CHECK(combined<std::int8_t>(DataType::int8, Reduction::max, in, {1, 2}) == List{100, 1, 5, -1});
  CHECK(combined<std::int8_t>(DataType::int8, Reduction::min, in, {1, 2}) ==
        List{100, -3, -4, -128});
  CHECK(combined<std::uint32_t>(DataType::uint32, Reduction::avg, {{0xfffffffeU}, {1U}}, {1, 1}) ==
        std::vector<std::uint32_t>{0x7fffffffU});
}

TEST_CASE("floats are added in double and rounded once") {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<float> any(-1000, 1000);
  std::vector<std::vector<float>> in(5, std::vector<float>(200));
  for (auto& list : in) {
    for (float& x : list) x = any(random);
  }
  const std::vector<std::uint32_t> weights{4, 1, 1, 1, 1};
  const auto sum = combined<float>(DataType::float32, Reduction::sum, in, weights);
  const auto avg = combined<float>(DataType::float32, Reduction::avg, in, weights);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    long double want = 0;
    for (std::size_t k = 0; k < in.size(); ++k)
      want += static_cast<long double>(in[k][i]) * weights[k];
    CHECK(sum[i] == doctest::Approx(static_cast<double>(want)).epsilon(1e-7));
    CHECK(avg[i] == doctest::Approx(static_cast<double>(want / 8)).epsilon(1e-7));
  }
  // 2^24 + 1 is no float: added one by one it would be lost twice.
  CHECK(combined<float>(DataType::float32, Reduction::sum, {{16777216.F}, {1.F}, {1.F}},
                        {1, 1, 1})[0] == 16777218.F);
  // bfloat16: 256 + 1 + 1.
  CHECK(combined<std::uint16_t>(DataType::bfloat16, Reduction::sum, {{0x4380}, {0x3f80}, {0x3f80}},
                                {1, 1, 1})[0] == 0x4381);
}

TEST_CASE("the largest and the least pass over what is not a number") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> in{{nan, 1, nan, -2}, {3, nan, nan, -5}};
  const auto max = combined<float>(DataType::float32, Reduction::max, in, {1, 1});
  const auto min = combined<float>(DataType::float32, Reduction::min, in, {1, 1});
  CHECK(max[0] == 3);
  CHECK(max[1] == 1);
  CHECK(std::isnan(max[2]));
  CHECK(max[3] == -2);
  CHECK(min[0] == 3);
  CHECK(min[3] == -5);
}
