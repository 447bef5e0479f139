#include "cmd/hvd-agent/worker_channel.h"

#include <array>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

#include "base/protocol/worker_link.h"
#include "base/text.h"

namespace hvd::agent {
namespace {

// Whether the frame is such a message, which `act` then gets.
template <typename Message, typename Act>
bool read(const Frame& frame, Act act) {
  if (static_cast<worker_link::Kind>(frame.kind) != Message::kKind) return false;
  auto message = Message::decode(frame.payload);
  if (message.ok()) act(*message);
  return message.ok();
}

}  // namespace

Status WorkerChannel::open(EventLoop& loop, UniqueFd socket, std::string welcome,
                           SharedBytes world) {
  socket_ = std::move(socket);
  writing_ = share(std::move(welcome));
  written_ = 0;
  waiting_first_world_ = std::move(world);
  loop_ = &loop;
  auto watch = loop.watch(socket_.get(), EPOLLIN, [this](std::uint32_t e) { on_events(e); });
  HVD_RETURN_IF_ERROR(watch.status());
  watch_ = std::move(*watch);
  flush();
  return {};
}

void WorkerChannel::on_events(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  if (listening_) {
    receive();
  } else if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
    close();
  }
}

void WorkerChannel::close() {
  watch_.end();
  socket_.reset();
  forget_what_waits();
}

void WorkerChannel::forget_what_waits() {
  writing_.reset();
  waiting_first_world_.reset();
  waiting_stop_.reset();
  waiting_effective_.reset();
  waiting_proposed_.reset();
  waiting_driver_gone_.reset();
  waiting_ping_ = false;
  waiting_question_.reset();
}

void WorkerChannel::update_watch() {
  if (!socket_) return;
  const std::uint32_t in = listening_ ? std::uint32_t{EPOLLIN} : 0U;
  const std::uint32_t out = writing_ ? std::uint32_t{EPOLLOUT} : 0U;
  loop_->change(socket_.get(), in | out);
}

bool WorkerChannel::begin_next() {
  written_ = 0;
  if (waiting_first_world_) {
    writing_ = std::move(waiting_first_world_);
  } else if (waiting_stop_) {
    writing_ = share(*std::move(waiting_stop_));
    waiting_stop_.reset();
  } else if (waiting_driver_gone_) {
    writing_ = share(waiting_driver_gone_->encode());
    waiting_driver_gone_.reset();
  } else if (waiting_effective_) {
    writing_ = std::move(waiting_effective_->frame);
    waiting_effective_.reset();
  } else if (waiting_proposed_) {
    writing_ = std::move(waiting_proposed_->frame);
    waiting_proposed_.reset();
  } else if (std::exchange(waiting_ping_, false)) {
    writing_ = share(worker_link::Ping{}.encode());
  } else if (waiting_question_) {
    writing_ = share(worker_link::AskActivity{*waiting_question_}.encode());
    waiting_question_.reset();
  }
  return writing_ != nullptr;
}

void WorkerChannel::flush() {
  while (socket_ && (writing_ || begin_next())) {
    const ssize_t sent = ::send(socket_.get(), writing_->data() + written_,
                                writing_->size() - written_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      written_ += static_cast<std::size_t>(sent);
      if (written_ == writing_->size()) writing_.reset();
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      // The worker does not read any more, but messages that it has sent may still be pending.
      forget_what_waits();
    }
  }
  update_watch();
}

void WorkerChannel::send_world(std::uint64_t generation, bool effective, SharedBytes frame) {
  if (!socket_) return;
  auto& waiting = effective ? waiting_effective_ : waiting_proposed_;
  if (waiting) {
    if (generation < waiting->generation) return;
    // A plain program never reads, and need not. One that called hvd::init() has to.
    if (told_done_ == false && !std::exchange(said_that_it_does_not_read_, true)) {
      listener_.problem(cat("does not read its descriptor: world ", waiting->generation,
                            " was replaced by world ", generation, " before it was taken"));
    }
  }
  waiting = WaitingWorld{generation, std::move(frame)};
  flush();
}

void WorkerChannel::send_stop(std::string_view reason) {
  if (!socket_) return;
  waiting_stop_ = worker_link::Stop{std::string(reason)}.encode();
  flush();
}

void WorkerChannel::send_driver_gone(worker_link::DriverGone message) {
  if (!socket_) return;
  if (message.gone) waiting_proposed_.reset();
  waiting_driver_gone_ = std::move(message);
  flush();
}

void WorkerChannel::send_ping() {
  if (!socket_) return;
  waiting_ping_ = true;
  flush();
}

void WorkerChannel::ask_activity(std::uint32_t id) {
  if (!socket_) return;
  waiting_question_ = id;
  flush();
}

void WorkerChannel::stop_listening(std::string why) {
  listening_ = false;
  update_watch();
  listener_.problem(std::move(why));
}

void WorkerChannel::receive() {
  while (socket_ && listening_) {
    std::array<char, 16384> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return close();
    decoder_.feed({buffer.data(), static_cast<std::size_t>(got)});
    for (bool more = true; more && listening_;) {
      const auto frame = decoder_.next();
      if (!frame.ok()) {
        return stop_listening(cat("sent malformed data on HVD_WORKER_FD (",
                                  frame.status().message(), "); its further messages are ignored"));
      }
      more = frame->has_value();
      if (more) handle(**frame);
    }
  }
}

void WorkerChannel::handle(const Frame& frame) {
  if (take(frame) || std::exchange(said_unknown_kind_, true)) return;
  listener_.problem(cat("sent a message on its descriptor that cannot be read (kind ", frame.kind,
                        ", ", frame.payload.size(), " bytes); it is ignored"));
}

bool WorkerChannel::take(const Frame& frame) {
  using namespace worker_link;  // NOLINT(google-build-using-namespace): all of its messages
  return read<WorkReport>(frame, [&](auto& said) { listener_.work(std::move(said.reading)); }) ||
         read<Mark>(frame,
                    [&](auto& said) {
                      if (listener_.mark) listener_.mark(std::move(said.commit));
                    }) ||
         read<Alive>(frame, [&](auto&) { listener_.alive(); }) ||
         read<Initialised>(frame, [&](auto&) { tell(false); }) ||
         read<Done>(frame, [&](auto&) { tell(true); }) ||
         read<Ready>(frame,
                     [&](auto&) {
                       if (!std::exchange(told_ready_, true) && may_tell()) listener_.ready();
                     }) ||
         read<Leave>(frame,
                     [&](auto&) {
                       if (!std::exchange(told_leaves_, true) && may_tell()) listener_.leaves();
                     }) ||
         read<Left>(frame,
                    [&](auto& said) {
                      if (!std::exchange(told_left_, true) && may_tell())
                        listener_.left(std::move(said));
                    }) ||
         read<Unreachable>(frame,
                           [&](auto& said) {
                             if (may_tell()) listener_.cannot_reach(std::move(said.host));
                           }) ||
         read<ActivityWanted>(frame,
                              [&](auto&) {
                                if (may_tell()) listener_.activity_wanted();
                              }) ||
         read<Activity>(frame,
                        [&](auto& said) {
                          if (said.id != Activity::kAtTheEnd || may_tell())
                            listener_.activity(std::move(said));
                        }) ||
         read<Committed>(frame, [&](auto& said) {
           if (said.generation <= told_committed_ || !may_tell()) return;
           told_committed_ = said.generation;
           listener_.committed(said.generation);
         });
}

// Several processes of one worker may share the descriptor and say the same; the driver hears of
// changes.
void WorkerChannel::tell(bool is_done) {
  if (told_done_ == is_done || !may_tell()) return;
  told_done_ = is_done;
  is_done ? listener_.done() : listener_.initialised();
}

// The number of messages is bounded, for a worker must not fill the driver's memory.
bool WorkerChannel::may_tell() {
  if (++told_ <= kMaxTold) return true;
  stop_listening(
      cat("has said more than ", kMaxTold, " things on its descriptor; it is not heard any more"));
  return false;
}

}  // namespace hvd::agent
