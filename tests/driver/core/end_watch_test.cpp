#include "driver/core/end_watch.h"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/posix/stream_descriptor.hpp>

#include "base/descriptors.h"
#include "base/machine/child_process.h"

namespace hvd::driver {
namespace {

namespace asio = boost::asio;

UniqueFd event() { return UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

void make_readable(int fd) {
  const std::uint64_t one = 1;
  ASSERT_EQ(::write(fd, &one, sizeof one), static_cast<ssize_t>(sizeof one));
}

TEST(EndWatch, TellsTheEndOfAProcessOnce) {
  asio::io_context io;
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  auto child = spawn_in_session({"sleep", "1000"}, {.input = null.get(), .output = null.get()});
  ASSERT_TRUE(child.ok()) << child.status().to_string();
  auto watched = watch_child(child->pid());
  ASSERT_TRUE(watched.ok()) << watched.status().to_string();
  int ends = 0;
  const EndWatch watch(io, std::move(*watched), [&ends] { ++ends; });

  io.poll();
  EXPECT_EQ(ends, 0);
  child->signal(SIGKILL);
  io.run();
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(end_text(child->wait()), "was killed by SIGKILL (signal 9)");
}

TEST(EndWatch, SaysNothingOnceItIsDestroyed) {
  asio::io_context io;
  const UniqueFd end = event();
  auto watch = std::make_unique<EndWatch>(io, end.get(), [] { FAIL(); });
  make_readable(end.get());
  watch.reset();
  io.run();
}

TEST(EndWatch, MayBeDestroyedByItsCallback) {
  asio::io_context io;
  const UniqueFd end = event();
  make_readable(end.get());
  std::unique_ptr<EndWatch> watch;
  watch = std::make_unique<EndWatch>(io, end.get(), [&watch] { watch.reset(); });
  io.run();
  EXPECT_EQ(watch, nullptr);
}

// Two descriptors are readable in one turn of the loop. The first handler closes the other one and
// begins to watch a third, which is not readable, in its place. Asio then reports that one, too.
class ReusedPlace : public testing::Test {
 protected:
  using Descriptor = asio::posix::stream_descriptor;

  // Calls `begin` in place of the second handler.
  template <typename F>
  void reuse(F begin) {
    std::array<UniqueFd, 2> events{event(), event()};
    std::array<std::unique_ptr<Descriptor>, 2> both;
    bool reused = false;
    for (std::size_t i = 0; i < both.size(); ++i) {
      both[i] = std::make_unique<Descriptor>(io_, ::dup(events[i].get()));
      both[i]->async_wait(Descriptor::wait_read,
                          [&, other = 1 - i](const boost::system::error_code& error) {
                            if (error || std::exchange(reused, true)) return;
                            both[other].reset();
                            begin();
                          });
    }
    for (const auto& fd : events) make_readable(fd.get());
    io_.run_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(reused);
  }

  asio::io_context io_{1};
  const UniqueFd third_ = event();
};

TEST_F(ReusedPlace, FoolsAsio) {
  std::optional<Descriptor> descriptor;
  bool told = false;
  reuse([&] {
    descriptor.emplace(io_, ::dup(third_.get()));
    descriptor->async_wait(Descriptor::wait_read,
                           [&](const boost::system::error_code& error) { told = !error; });
  });
  EXPECT_TRUE(told) << "EndWatch need not look any more whether it is so";
}

TEST_F(ReusedPlace, DoesNotFoolAnEndWatch) {
  std::optional<EndWatch> watch;
  bool told = false;
  reuse([&] { watch.emplace(io_, third_.get(), [&] { told = true; }); });
  EXPECT_FALSE(told);

  make_readable(third_.get());
  io_.restart();
  io_.run();
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace hvd::driver
