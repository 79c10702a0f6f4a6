#include "comm/pat.h"

#include <doctest/doctest.h>

#include <initializer_list>

using namespace prism;

TEST_CASE("chunks sum to N - 1 and partners agree, all sizes to 4,096") {
  bool good = true;
  for (std::uint32_t ranks = 2; ranks <= 4096; ++ranks) {
    std::uint64_t chunks = 0;
    for (std::uint32_t k = 0; k < pat_dimensions(ranks); ++k) {
      for (const bool all_gather : {false, true}) {
        for (const std::uint32_t rank : {0U, 1U, ranks / 2, ranks - 1}) {
          const PatStep step = pat_step(ranks, rank, k, all_gather);
          good &= step.send_to < ranks && step.receive_from < ranks && step.send_to != rank;
          good &= pat_step(ranks, step.send_to, k, all_gather).receive_from == rank;
          good &= pat_step(ranks, rank, k, !all_gather).send_to == step.receive_from;
        }
      }
      chunks += pat_step(ranks, 0, k, true).chunks;
    }
    good &= chunks == ranks - 1;
  }
  CHECK(good);
  CHECK(pat_dimensions(1) == 0);
  CHECK(pat_dimensions(2) == 1);
  CHECK(pat_dimensions(5) == 3);
}

TEST_CASE("eight ranks: dimension 1 moves two chunks, a reduce-scatter downwards") {
  CHECK(pat_step(8, 3, 0, false) == PatStep{2, 4, 4});
  CHECK(pat_step(8, 3, 1, false) == PatStep{1, 5, 2});
  CHECK(pat_step(8, 3, 2, true) == PatStep{7, 7, 1});
}
