#include "engine/mailbox.h"

#include <doctest/doctest.h>

#include <deque>
#include <map>
#include <random>
#include <tuple>

using namespace prism::engine;

TEST_CASE("sides of a channel match in order, whichever comes first") {
  // Against one deque a channel, over far more channels than the table begins with.
  std::mt19937 random(11);
  Mailbox box;
  const Part part;
  std::map<std::tuple<std::uint32_t, std::uint32_t>, std::deque<std::uint32_t>> sends, receives;
  std::uint64_t unreceived = 0;
  for (int k = 0; k < 20000; ++k) {
    const std::uint32_t source = static_cast<std::uint32_t>(random() % 40);
    const std::uint32_t target = static_cast<std::uint32_t>(random() % 40);
    const bool is_send = random() % 2 == 0;
    auto& mine = (is_send ? sends : receives)[{source, target}];
    auto& theirs = (is_send ? receives : sends)[{source, target}];
    const MessageSide side{k, &part, 0, 0};
    const std::uint32_t id = box.enrol({1, source, target, 0}, is_send, side, false);
    CHECK(box.at(id).matched() == !theirs.empty());
    if (theirs.empty()) {
      mine.push_back(id);
      unreceived += is_send ? 1 : 0;
    } else {
      CHECK(id == theirs.front());
      theirs.pop_front();
      unreceived -= is_send ? 0 : 1;
      box.leave(id);
      box.leave(id);
    }
  }
  CHECK(box.unreceived() == unreceived);
  CHECK((box.any_unreceived() == no_node) == (unreceived == 0));
}
