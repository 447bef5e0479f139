// `hvdrun jobs`, `status` and the like, asking sockets that are no jobs of ours: for root that may
// be programs of any user.
#include <array>
#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/text.h"
#include "tests/support/process.h"
#include "tests/support/texts.h"

namespace hvd::test {
namespace {

UniqueFd listen_at(const std::filesystem::path& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.string().copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(fd.get(), 16), 0);
  return fd;
}

// How many bytes came.
std::size_t read_request(int fd) {
  std::string request;
  std::array<char, 4096> buffer{};
  while (!contains(request, "\r\n\r\n")) {
    const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (got <= 0) break;
    request.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return request.size();
}

void send_text(int fd, const std::string& text) {
  (void)::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
}

// Listens like a job, and gives the same answer to each request. `drips`: without an end, a byte
// now and then.
class PretendJob {
 public:
  PretendJob(const std::filesystem::path& path, std::string answer, bool drips = false)
      : answer_(std::move(answer)),
        drips_(drips),
        end_(::eventfd(0, EFD_CLOEXEC)),
        listener_(listen_at(path)),
        thread_([this] { serve(); }) {}
  ~PretendJob() {
    ::eventfd_write(end_.get(), 1);
    thread_.join();
  }
  PretendJob(const PretendJob&) = delete;
  PretendJob& operator=(const PretendJob&) = delete;

  // How many bytes of requests it has got.
  std::size_t received() const { return received_; }

 private:
  // False: this one is to end.
  bool wait_for(int fd, int milliseconds) const {
    std::array<pollfd, 2> watched{pollfd{end_.get(), POLLIN, 0}, pollfd{fd, POLLIN, 0}};
    ::poll(watched.data(), watched.size(), milliseconds);
    return watched[0].revents == 0;
  }

  void serve() {
    while (wait_for(listener_.get(), -1)) {
      const UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      received_ += read_request(fd.get());
      if (!drips_) {
        send_text(fd.get(),
                  cat("HTTP/1.1 200 OK\r\nContent-Length: ", answer_.size(), "\r\n\r\n", answer_));
        continue;
      }
      send_text(fd.get(), "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
      while (wait_for(-1, 100)) send_text(fd.get(), " ");
    }
  }

  const std::string answer_;
  const bool drips_;
  std::atomic<std::size_t> received_ = 0;
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

constexpr uid_t kStranger = 65534;

// While this exists, the calling thread makes files and sockets as another user.
class AsStranger {
 public:
  AsStranger() { become(kStranger); }
  ~AsStranger() { become(0); }
  AsStranger(const AsStranger&) = delete;
  AsStranger& operator=(const AsStranger&) = delete;

 private:
  static void become(uid_t user) { EXPECT_EQ(::syscall(SYS_setresuid, -1, user, -1), 0); }
};

class JobCommands : public testing::Test {
 protected:
  std::filesystem::path path_of(const std::string& id) const {
    return directory_.path() / cat(id, ".sock");
  }
  void add(const std::string& id, const std::string& answer, bool drips = false) {
    jobs_.push_back(std::make_unique<PretendJob>(path_of(id), answer, drips));
  }
  void add_silent(const std::string& id) { silent_.push_back(listen_at(path_of(id))); }
  const std::filesystem::path& directory() const { return directory_.path(); }
  const std::vector<std::unique_ptr<PretendJob>>& jobs() const { return jobs_; }
  ExitStatus ask(const std::vector<std::string>& words) const { return start(words)->wait(); }
  // With a copy of hvdrun that every user can start.
  ExitStatus ask_as_stranger(const std::vector<std::string>& words) const {
    const TemporaryDirectory open;
    std::filesystem::permissions(open.path(), std::filesystem::perms{0755});
    std::filesystem::copy_file(binary("hvdrun"), open.path() / "hvdrun");
    const std::vector<std::string> command{"setpriv", cat("--reuid=", kStranger), "--clear-groups",
                                           open.path() / "hvdrun"};
    return start_command(command, words)->wait();
  }
  std::unique_ptr<Process> start(const std::vector<std::string>& words) const {
    return start_command({binary("hvdrun")}, words);
  }

 private:
  std::unique_ptr<Process> start_command(std::vector<std::string> command,
                                         const std::vector<std::string>& words) const {
    command.insert(command.end(), words.begin(), words.end());
    ProcessOptions options;
    options.environment = {{"HVD_RUNTIME_DIR", directory_.path()}};
    return std::make_unique<Process>(command, options);
  }

  const TemporaryDirectory directory_;
  std::vector<std::unique_ptr<PretendJob>> jobs_;
  std::vector<UniqueFd> silent_;
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
           {"metrics"}, {"page"}, {"dump"}, {"drain", "h"}, {"scale", "1"}, {"token", "list"}}) {
    const auto asked = ask(words);
    EXPECT_EQ(asked.code, 0) << asked.err;
    EXPECT_TRUE(contains(asked.out, "\\x1b[2J\\xc2\\x9b\\x7f\n")) << words.front() << asked.out;
  }
  const auto status = ask({"status"});
  EXPECT_EQ(status.code, 1);
  EXPECT_TRUE(contains(status.err, "job a: its answer is not the status of a job")) << status.err;
}

// The answers say that they are job "other", of process 1: a script that stops what `hvdrun jobs`
// lists would end somebody else's.
TEST_F(JobCommands, TheIdAndTheProcessOfAJobAreThoseOfItsSocket) {
  add("mine", status_with("other"));
  const std::string process = cat(::getpid());
  const auto jobs = ask({"jobs", "--json"});
  EXPECT_TRUE(contains(jobs.out, R"("job": "mine")")) << jobs.out;
  EXPECT_TRUE(contains(jobs.out, cat(R"("pid": )", process))) << jobs.out;
  const auto status = ask({"status"});
  EXPECT_TRUE(status.out.starts_with("job mine: ")) << status.out;
  EXPECT_TRUE(contains(status.out, cat("(hvdrun has pid ", process, ")"))) << status.out;
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

// One after the other they would take longer than a test waits.
TEST_F(JobCommands, NightlySilentJobsAreWaitedForTogetherAndNamed) {
  for (int i = 0; i < 8; ++i) add_silent(cat("silent", i));
  add("drips", "", true);
  add("good", status_with("fine"));
  const auto asked_to_stop = start({"stop"});
  const auto jobs = ask({"jobs"});
  EXPECT_EQ(jobs.code, 0) << jobs.err;
  EXPECT_TRUE(contains(jobs.out, "fine ")) << jobs.out;
  for (const char* const id : {"drips", "silent0", "silent7"}) {
    EXPECT_TRUE(contains(jobs.err, cat("hvdrun: warning: job ", id, ": no answer within 10 s at ",
                                       path_of(id).string())))
        << jobs.err;
  }

  const auto stop = asked_to_stop->wait();
  EXPECT_EQ(stop.code, 1);
  EXPECT_TRUE(contains(stop.err, "10 jobs run: drips (does not answer), good, silent0 (does not"))
      << stop.err;
}

TEST_F(JobCommands, TheOnlyJobThatIsSilentIsAnError) {
  add_silent("silent");
  const auto asked_to_stop = start({"stop"});
  for (const auto& asked : {ask({"jobs"}), asked_to_stop->wait()}) {
    EXPECT_EQ(asked.code, 1);
    EXPECT_TRUE(contains(asked.err, "hvdrun: job silent: no answer within 10 s at ")) << asked.err;
  }
}

TEST_F(JobCommands, ASocketWithTooLongAPathIsNoJob) {
  const std::string name(200, 'x');
  const UniqueFd file(::open(path_of(name).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  ASSERT_TRUE(file);
  EXPECT_EQ(ask({"jobs"}).out, "no job of this user runs on this machine\n");
}

// As root's hvdrun sees the directory of another user, which may lead it to any socket.
TEST_F(JobCommands, ALinkIsNoJob) {
  const TemporaryDirectory elsewhere;
  const PretendJob target(elsewhere.path() / "any", status_with("fine"));
  std::filesystem::create_symlink(elsewhere.path() / "any", path_of("linked"));
  EXPECT_EQ(ask({"jobs"}).out, "no job of this user runs on this machine\n");
  EXPECT_EQ(ask({"stop", "linked"}).code, 1);
  EXPECT_EQ(target.received(), 0U);
}

TEST_F(JobCommands, OnlyTheOwnerOfADirectoryHasJobsThere) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a file of another user";
  add("theirs", status_with("fine"));
  add("ours", status_with("fine"));
  ASSERT_EQ(::chown(directory().c_str(), kStranger, kStranger), 0);
  EXPECT_EQ(ask({"jobs"}).out, "no job of this user runs on this machine\n");

  // The file belongs to the right user, and a program of another one listens there.
  ASSERT_EQ(::chown(path_of("theirs").c_str(), kStranger, kStranger), 0);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"jobs"}, {"stop", "theirs"}}) {
    const auto asked = ask(words);
    EXPECT_EQ(asked.code, 1) << asked.out;
    EXPECT_TRUE(contains(asked.err, "does not lead to a program of its owner")) << asked.err;
  }
  for (const auto& job : jobs()) EXPECT_EQ(job->received(), 0U);
}

TEST_F(JobCommands, ADirectoryOfAnotherUserHasNoJobsForThisOne) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  add("fine", status_with("fine"));
  ASSERT_EQ(::chmod(directory().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path_of("fine").c_str(), 0666), 0);
  const auto asked = ask_as_stranger({"stop", "fine"});
  EXPECT_EQ(asked.code, 1) << asked.out;
  EXPECT_TRUE(contains(asked.err, "no job \"fine\" of this user")) << asked.err;
  EXPECT_EQ(jobs().front()->received(), 0U);
}

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

TEST_F(JobCommands, AnotherUserCannotFillTheMemoryOfRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a file of another user";
  ASSERT_EQ(::chown(directory().c_str(), kStranger, kStranger), 0);
  {
    const AsStranger user;
    add("large", std::string(5 * kMegabyte, ' '));
    for (int i = 0; i < 24; ++i) {
      add(cat("padded", i), status_with("fine") + std::string(7 * kMegabyte / 2, ' '));
    }
  }
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"jobs"}, {"jobs", "--json"}}) {
    const auto asked = ask(words);
    EXPECT_EQ(asked.code, 0) << asked.err;
    EXPECT_TRUE(contains(asked.out, "fine")) << asked.out;
    EXPECT_TRUE(contains(asked.err, "job large: its answer is larger than 4,194,304 bytes"))
        << asked.err;
    EXPECT_TRUE(contains(asked.err, ": the answers in its directory are larger than 67,108,864 "))
        << asked.err;
  }
}

TEST_F(JobCommands, AJobWithLongTextsDoesNotLengthenTheLinesOfOthers) {
  for (int i = 0; i < 20; ++i) add(cat("good", i), status_with("fine"));
  add("wide", status_with(std::string(200'000, 'x')));
  const auto jobs = ask({"jobs"});
  EXPECT_EQ(jobs.code, 0) << jobs.err;
  EXPECT_TRUE(contains(jobs.out, "fine ")) << jobs.out.substr(0, 10'000);
  EXPECT_LT(jobs.out.size(), 500'000U);
}

}  // namespace
}  // namespace hvd::test
