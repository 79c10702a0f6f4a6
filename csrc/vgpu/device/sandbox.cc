// A rank of an emulation: its ops go to the engine, which knows its times.
#include <pthread.h>

#include <chrono>
#include <thread>
#include <utility>

#include "vgpu/device/impl.h"

namespace prism::vgpu {
namespace {

thread_local bool has_left_ = false;

}  // namespace

void Session::attach(PortMemory memory, std::size_t number) {
  const std::lock_guard lock(impl_->mutex);
  PRISM_CHECK(!impl_->active);
  impl_->port = std::make_unique<Port>(std::move(memory), number);
}

void Session::detach() {
  has_left_ = true;
  impl_->left = true;
  if (impl_->port != nullptr) impl_->port->abandon();
  if (impl_->exchange != nullptr) impl_->exchange->abandon();
}

bool has_left() noexcept { return has_left_; }
void wait_for_no_move() noexcept { has_left_ = true; }

void Session::attach_exchange(ExchangeMemory memory, std::size_t number) {
  const std::lock_guard lock(impl_->mutex);
  PRISM_CHECK(!impl_->active && impl_->exchange == nullptr);
  impl_->exchange = std::make_unique<Exchange>(std::move(memory), number);
  std::thread device([impl = impl_] { impl->run_device(); });
  impl_->mover = device.get_id();
  device.detach();
}

Exchange* Session::exchange() const noexcept { return impl_->exchange.get(); }

std::shared_ptr<const Company> Session::company(std::uint32_t slot) const {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->recording() || slot >= impl_->communicators.size()) return nullptr;
  return impl_->communicators[slot].company;
}

std::shared_ptr<const Company> Session::Impl::company_of(const Communicator& communicator) const {
  if (exchange == nullptr || communicator.members.empty()) return nullptr;
  Company company;
  company.exchange = exchange.get();
  company.identity = communicator.identity;
  company.size = communicator.open.size;
  company.own = communicator.open.position;
  for (std::uint32_t position = 0; position < company.size; ++position) {
    const auto number = exchange->number_of(communicator.members[position]);
    if (!number) continue;
    company.positions.push_back(position);
    company.numbers.push_back(*number);
  }
  if (company.positions.size() < 2) return nullptr;
  return std::make_shared<const Company>(std::move(company));
}

bool Session::Impl::move_on(Stream& stream, StateLock& lock) {
  bool moved = false;
  std::deque<Move>& moves = stream.queue.moves;
  while (!moves.empty() && !left) {
    Move& front = moves.front();
    if (front.runs) break;
    if (front.wait_stream != nullptr) {
      if (!front.wait_stream->queue.is_done(front.wait_move)) break;
      pop(stream);
    } else if (front.step) {
      lock.unlock();
      const Lacks lacks = front.step();
      lock.lock();
      front.lacks = lacks;
      if (lacks) break;
      pop(stream);
    } else {
      run_first(stream, lock);
    }
    moved = true;
  }
  return moved;
}

bool Session::Impl::move_on(StateLock& lock) {
  lock.unlock();
  bool moved = exchange->progress();
  lock.lock();
  if (pending == 0) return moved;
  for (bool again = true; again;) {
    again = move_on(default_stream, lock);
    for (Stream* stream : all_streams()) again |= move_on(*stream, lock);
    moved |= again;
  }
  return moved;
}

void Session::Impl::step_until(Stream& stream, std::uint64_t move, StateLock& lock) {
  while (!stream.queue.is_done(move) && !left) {
    const std::uint32_t seen = exchange->news();
    if (first_behind(stream)->runs) return;  // it called in again, and cannot wait for itself
    if (move_on(lock)) continue;
    lock.unlock();
    exchange->sleep(seen, std::chrono::milliseconds(100));
    lock.lock();
  }
}

void Session::Impl::run_device() {
  pthread_setname_np(pthread_self(), "prism_device");
  const InMove all_its_life;
  for (;;) {
    const std::uint32_t seen = exchange->news();
    bool moves = false;
    {
      StateLock lock(mutex.state);
      moves = move_on(lock);
    }
    if (!moves) exchange->sleep(seen, std::chrono::seconds(1));
  }
}

void Session::Impl::leave_no_bytes() {
  if (exchange == nullptr || has_left()) return;
  const LetGo interpreter;
  while (!exchange->is_over() && !exchange->is_flushed()) {
    const std::uint32_t seen = exchange->news();
    if (!exchange->progress()) exchange->sleep(seen, std::chrono::milliseconds(100));
  }
}

void Session::enqueue_step(void* stream, std::function<Lacks()> step, std::vector<Range> touches) {
  impl_->push(stream, {.step = std::move(step), .touches = std::move(touches)});
  impl_->exchange->stir();
}

void Session::follow_all(void* stream) {
  Impl& impl = *impl_;
  const std::lock_guard lock(impl.mutex);
  Stream* found = impl.find_stream(stream);
  Stream& s = found != nullptr ? *found : impl.default_stream;
  const auto follow = [&](Stream& other) {
    if (&other == &s || other.queue.idle()) return;
    impl.push(s, {.wait_stream = &other, .wait_move = other.queue.issued});
  };
  follow(impl.default_stream);
  impl.streams.for_each(follow);
}

std::int64_t Session::Impl::post(const Op& op, Ask ask) {
  Post post;
  post.op = op;
  post.ask = ask;
  if (op.kind == OpKind::kernel) {
    post.what = kernel_identities[op.ref];
  } else if (is_communication(op.kind)) {
    post.what = communicators[op.ref].identity;
  }
  if (ask == Ask::nothing) {
    port->post(post);
    return 0;
  }
  mutex.state.unlock();
  std::int64_t told = 0;
  {
    const LetGo interpreter;
    told = port->ask(post);
  }
  mutex.state.lock();
  return told;
}

void Session::Impl::post_end() {
  if (port == nullptr || !active) return;
  if (!frees.empty()) append_frees();
  Post post;
  post.ended = true;
  port->post(post);
}

std::int64_t Session::Impl::query(const Event& event, Ask ask, bool costs) {
  Op op;
  op.kind = OpKind::query;
  op.event_stream = event.stream;
  op.peer = records[event.stream] - event.record + 1;
  if (costs || options.measure_host) begin(op);
  return append(op, ask);
}

}  // namespace prism::vgpu
