#include "spare/placement.h"

#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "base/error.h"
#include "spare/difference_set.h"
#include "spare/golomb.h"

using namespace prism;
using namespace prism::spare;

TEST_CASE("algebraic constructions have distinct differences modulo their modulus") {
  for (const std::int32_t q : {2, 3, 5, 7, 11, 13, 17, 19}) {
    const DifferenceSet planes = singer(q);
    CHECK(planes.modulus == q * q + q + 1);
    CHECK(planes.elements.size() == static_cast<std::size_t>(q + 1));
    CHECK(distinct_differences(planes.elements, planes.modulus));
    const DifferenceSet affine = bose_chowla(q);
    CHECK(affine.modulus == q * q - 1);
    CHECK(affine.elements.size() == static_cast<std::size_t>(q));
    CHECK(distinct_differences(affine.elements, affine.modulus));
    const DifferenceSet roots = ruzsa(q);
    CHECK(roots.modulus == q * q - q);
    CHECK(roots.elements.size() == static_cast<std::size_t>(q - 1));
    CHECK(distinct_differences(roots.elements, roots.modulus));
  }
}

TEST_CASE("differences are compared in both directions") {
  const std::vector<std::int32_t> ruler = {0, 1, 3};
  CHECK(distinct_differences(ruler, 7));
  CHECK_FALSE(distinct_differences(ruler, 6));  // 3 = -3
  CHECK_FALSE(distinct_differences(ruler, 5));  // 2 = -3
  CHECK_FALSE(distinct_differences(ruler, 3));  // two marks in one
}

TEST_CASE("golomb: group w has type w + g_i, and type d the hosts d - g_i") {
  const Placement placement = Placement::golomb(13, 4);
  const std::vector<std::int32_t> ruler = golomb_ruler(4);
  for (std::int32_t group = 0; group < 13; ++group) {
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(placement.stack(group)[i] == (group + ruler[i]) % 13);
      CHECK(placement.hosts(group)[i] == (group - ruler[i] + 13) % 13);
    }
  }
  CHECK(placement.max_shared() == 1);
  CHECK_THROWS_AS(Placement::golomb(12, 4), SpareError);
}

TEST_CASE("random is the same on every machine") {
  const Placement placement = Placement::random(6, 2, 7);
  const std::vector<std::int32_t> expected = {5, 0, 4, 3, 0, 1, 2, 5, 1, 2, 3, 4};
  CHECK(std::vector<std::int32_t>(placement.stacks().begin(), placement.stacks().end()) ==
        expected);
}

TEST_CASE("no two hosts of a type in a rack") {
  std::vector<std::int32_t> rack(60);
  for (std::size_t group = 0; group < rack.size(); ++group) {
    rack[group] = static_cast<std::int32_t>(group / 5);
  }
  const Placement placement = Placement::domains(4, rack);
  for (std::int32_t type = 0; type < 60; ++type) {
    std::set<std::int32_t> racks;
    for (const std::int32_t host : placement.hosts(type)) {
      racks.insert(rack[static_cast<std::size_t>(host)]);
    }
    CHECK(racks.size() == 4);
  }
  CHECK(placement.max_shared() == 1);
}
