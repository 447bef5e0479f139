#include "driver/core/end_watch.h"

#include <poll.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>

#include "base/descriptors.h"

namespace hvd::driver {

namespace asio = boost::asio;
using boost::system::error_code;

// Outlives the EndWatch while a handler is under way.
class EndWatch::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, UniqueFd descriptor, std::function<void()> on_end)
      : descriptor_(io, descriptor.release()), on_end_(std::move(on_end)) {}

  void wait() {
    descriptor_.async_wait(asio::posix::stream_descriptor::wait_read,
                           [self = shared_from_this()](const error_code& error) {
                             if (error || !self->on_end_) return;
                             if (!is_ready(self->descriptor_.native_handle(), POLLIN)) {
                               return self->wait();
                             }
                             std::exchange(self->on_end_, nullptr)();
                           });
  }

  void close() {
    on_end_ = nullptr;
    error_code ignored;
    descriptor_.close(ignored);
  }

 private:
  asio::posix::stream_descriptor descriptor_;
  std::function<void()> on_end_;
};

EndWatch::EndWatch(asio::io_context& io, UniqueFd descriptor, std::function<void()> on_end)
    : impl_(std::make_shared<Impl>(io, std::move(descriptor), std::move(on_end))) {
  impl_->wait();
}

EndWatch::EndWatch(asio::io_context& io, int descriptor, std::function<void()> on_end)
    : EndWatch(io, UniqueFd(::dup(descriptor)), std::move(on_end)) {}

EndWatch::~EndWatch() { impl_->close(); }

}  // namespace hvd::driver
