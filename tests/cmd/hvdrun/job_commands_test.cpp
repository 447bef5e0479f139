// `hvdrun jobs`, `status` and the like, asking sockets that are no jobs of ours: for root that may
// be programs of any user.
#include <array>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "base/text.h"
#include "base/unique_fd.h"
#include "tests/support/process.h"
#include "tests/support/texts.h"

namespace hvd::test {
namespace {

// Listens like a job, and gives the same answer to each request.
class PretendJob {
 public:
  PretendJob(const std::filesystem::path& path, std::string answer)
      : answer_(std::move(answer)),
        end_(::eventfd(0, EFD_CLOEXEC)),
        listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.string().copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~PretendJob() {
    ::eventfd_write(end_.get(), 1);
    thread_.join();
  }
  PretendJob(const PretendJob&) = delete;
  PretendJob& operator=(const PretendJob&) = delete;

 private:
  void serve() {
    for (;;) {
      std::array<pollfd, 2> watched{pollfd{listener_.get(), POLLIN, 0},
                                    pollfd{end_.get(), POLLIN, 0}};
      ::poll(watched.data(), watched.size(), -1);
      if (watched[1].revents != 0) return;
      const UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      std::string request;
      std::array<char, 4096> buffer{};
      while (!contains(request, "\r\n\r\n")) {
        const ssize_t got = ::recv(fd.get(), buffer.data(), buffer.size(), 0);
        if (got <= 0) break;
        request.append(buffer.data(), static_cast<std::size_t>(got));
      }
      const std::string reply =
          cat("HTTP/1.1 200 OK\r\nContent-Length: ", answer_.size(), "\r\n\r\n", answer_);
      (void)::send(fd.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
    }
  }

  const std::string answer_;
  const UniqueFd end_;
  const UniqueFd listener_;
  std::thread thread_;
};

// A status whose texts all begin with `text`, as it stands in JSON.
std::string status_with(const std::string& text) {
  const std::string here = cat('"', text, '"');
  return cat(R"({"schema":1,"job":)", here, R"(,"state":)", here,
             R"(,"pid":1,"seconds":2.5,"command":[)", here, R"(,"x"],"waits_for":)", here,
             R"(,"drained":[)", here,
             R"(],"work":{"bytes_per_second":null},"world":{"members":[{"rank":0,"worker":)", here,
             R"(,"host":)", here, R"(,"pid":2,"state":)", here, R"(,"membership":"member","work":)",
             R"({"slow":true,"late":0.5,"waited":0.5}}]},"other_workers":[],"hosts":[{"host":)",
             here, R"(,"state":)", here, R"(,"leaves":false,"error":)", here,
             R"(,"workers":1,"slots":1,"address":)", here, R"(}],"worlds":[{"generation":1,"at":)",
             here, R"(,"size":1,"why":)", here, R"(,"entry":{"seconds":1.5,"worker":)", here,
             R"(,"text":)", here, R"(}}]})");
}

class JobCommands : public testing::Test {
 protected:
  void add(const std::string& id, const std::string& answer) {
    jobs_.push_back(std::make_unique<PretendJob>(directory_.path() / cat(id, ".sock"), answer));
  }
  ExitStatus ask(const std::vector<std::string>& words) const {
    std::vector<std::string> command{binary("hvdrun")};
    command.insert(command.end(), words.begin(), words.end());
    ProcessOptions options;
    options.environment = {{"HVD_RUNTIME_DIR", directory_.path()}};
    return run(command, options);
  }
  std::filesystem::path directory() const { return directory_.path(); }

 private:
  const TemporaryDirectory directory_;
  std::vector<std::unique_ptr<PretendJob>> jobs_;
};

bool reaches_a_terminal(const std::string& text) {
  return contains(text, "\x1b") || contains(text, "\x7f") || contains(text, "\xc2\x9b");
}

TEST_F(JobCommands, NoControlCharacterOfAStatusReachesTheTerminal) {
  add("c0", status_with(R"(\u001b]0;x\u0007)"));
  add("del", status_with(R"(\u007f)"));
  add("c1", status_with("\xc2\x9b"));
  add("escaped-c1", status_with(R"(\u009b)"));
  const std::vector<std::vector<std::string>> all{
      {"jobs"},          {"jobs", "--json"},          {"status", "c0"},
      {"status", "c1"},  {"status", "c0", "--json"},  {"status", "c1", "--json"},
      {"status", "del"}, {"status", "del", "--json"}, {"status", "escaped-c1"}};
  for (const auto& words : all) {
    const auto asked = ask(words);
    EXPECT_EQ(asked.code, 0) << asked.err;
    EXPECT_FALSE(asked.out.empty());
    EXPECT_FALSE(reaches_a_terminal(asked.out + asked.err)) << join(words, " ") << asked.out;
  }
  EXPECT_TRUE(contains(ask({"status", "c0"}).out, "waits for: \\x1b]0;x\\x07\n"));
  EXPECT_TRUE(contains(ask({"status", "c1", "--json"}).out, R"("waits_for": "\u009b")"));
}

TEST_F(JobCommands, NoControlCharacterOfAnotherAnswerReachesTheTerminal) {
  add("a", "\x1b[2J\xc2\x9b\x7f\n");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"metrics"}, {"page"}, {"dump"}, {"drain", "h"}, {"scale", "1"}}) {
    const auto asked = ask(words);
    EXPECT_EQ(asked.code, 0) << asked.err;
    EXPECT_TRUE(contains(asked.out, "\\x1b[2J\\xc2\\x9b\\x7f\n")) << words.front() << asked.out;
  }
  const auto status = ask({"status"});
  EXPECT_EQ(status.code, 1);
  EXPECT_TRUE(contains(status.err, "job a: its answer is not the status of a job")) << status.err;
}

TEST_F(JobCommands, AnAnswerThatIsNoStatusHidesNoOtherJob) {
  add("good", status_with("fine"));
  add("empty", "{}");
  add("deep", cat(R"({"job":)", std::string(100'000, '['), std::string(100'000, ']'), "}"));
  add("rubbish", "\xff{");
  add("x\x1b[2J", status_with("hidden"));
  const auto jobs = ask({"jobs"});
  EXPECT_EQ(jobs.code, 0) << jobs.err;
  EXPECT_TRUE(contains(jobs.out, "fine ")) << jobs.out;
  EXPECT_FALSE(contains(jobs.out, "hidden")) << jobs.out;
  EXPECT_EQ(ask({"jobs", "--json"}).code, 0);
}

}  // namespace
}  // namespace hvd::test
