#include "driver/slurm/srun_step.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <unistd.h>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "base/descriptors.h"
#include "base/machine/child_process.h"
#include "base/printable.h"
#include "base/text.h"
#include "driver/core/end_watch.h"
#include "driver/core/stderr_tail.h"

namespace hvd::driver::slurm {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

}  // namespace

// Outlives the SrunStep while a handler is under way.
class SrunStep::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, ChildProcess srun, UniqueFd ended, UniqueFd output,
       std::function<void()> on_end)
      : srun_(std::move(srun)),
        output_(io, output.release()),
        on_end_(std::move(on_end)),
        end_watch_(std::in_place, io, std::move(ended), [this] { end(); }) {}

  void begin() { read(); }

  void close() {
    on_end_ = nullptr;
    error_code ignored;
    end_watch_.reset();
    output_.close(ignored);
    if (!runs()) return;
    srun_.signal(SIGKILL);
    reap();
  }

  bool runs() const { return srun_.pid() > 0; }
  void stop() const { srun_.signal(SIGTERM); }
  void wait_until(TimePoint deadline) {
    if (runs() && wait_for_child(srun_.pid(), deadline)) end();
  }

  std::string text() const {
    std::vector<std::string> lines;
    for (const auto& line : tail_.lines()) {
      if (!trim(line).empty()) lines.push_back(printable(trim(line)));
    }
    const std::string printed = join(lines, "; ");
    if (how_.empty() || printed.empty()) return cat(how_, printed);
    return cat(how_, ": ", printed);
  }

 private:
  void read() {
    output_.async_read_some(asio::buffer(buffer_),
                            [self = shared_from_this()](error_code error, std::size_t size) {
                              if (error) return;
                              self->tail_.feed({self->buffer_.data(), size});
                              self->read();
                            });
  }

  // All that srun has printed is in the pipe by now.
  void end() {
    if (!runs()) return;
    reap();
    error_code error;
    output_.non_blocking(true, error);
    while (!error) {
      const std::size_t size = output_.read_some(asio::buffer(buffer_), error);
      if (!error) tail_.feed({buffer_.data(), size});
    }
    output_.close(error);
    end_watch_.reset();
    if (const auto on_end = std::exchange(on_end_, nullptr)) on_end();
  }

  void reap() { how_ = end_text(srun_.wait()); }

  ChildProcess srun_;
  asio::posix::stream_descriptor output_;
  std::function<void()> on_end_;
  std::array<char, 4096> buffer_{};
  StderrTail tail_;
  std::string how_;  // empty: it runs
  std::optional<EndWatch> end_watch_;
};

Result<std::unique_ptr<SrunStep>> SrunStep::start(asio::io_context& io,
                                                  const std::vector<std::string>& command,
                                                  const std::vector<std::string>& environment,
                                                  std::string_view input,
                                                  std::function<void()> on_end) {
  auto to_step = make_pipe();
  if (!to_step.ok()) return to_step.status();
  auto from_step = make_pipe();
  if (!from_step.ok()) return from_step.status();
  // It fits into the buffer of the pipe, so that nothing has to wait.
  if (::write(to_step->write_end.get(), input.data(), input.size()) !=
      static_cast<ssize_t>(input.size())) {
    return Status::from_errno("write the input of srun", errno);
  }
  to_step->write_end.reset();

  const int output = from_step->write_end.get();
  auto srun = spawn_in_session(
      command, {.input = to_step->read_end.get(), .output = output, .errors = output},
      &environment);
  if (!srun.ok()) return srun.status();
  auto ended = watch_child(srun->pid());
  if (!ended.ok()) return ended.status().with_context(cat("watch srun, pid ", srun->pid()));

  auto impl = std::make_shared<Impl>(io, *std::move(srun), std::move(*ended),
                                     std::move(from_step->read_end), std::move(on_end));
  impl->begin();
  return std::unique_ptr<SrunStep>(new SrunStep(std::move(impl)));
}

SrunStep::SrunStep(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
SrunStep::~SrunStep() { impl_->close(); }
bool SrunStep::runs() const { return impl_->runs(); }
void SrunStep::stop() { impl_->stop(); }
void SrunStep::wait_until(TimePoint deadline) { impl_->wait_until(deadline); }
std::string SrunStep::text() const { return impl_->text(); }

}  // namespace hvd::driver::slurm
