#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <map>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "base/descriptors.h"
#include "base/other_launcher.h"
#include "base/printable.h"
#include "base/security/crypto.h"
#include "base/socket.h"
#include "base/text.h"
#include "worker/launch/launcher_store.h"

namespace hvd::worker {
namespace {

// The launcher answers from its memory, all but the barrier.
constexpr std::chrono::seconds kAnswerLimit{60};
constexpr std::size_t kMostAnswer = 64 << 10;
constexpr std::size_t kLongestValue = kMostAnswer / 2;  // its answer holds other words, too
constexpr std::size_t kMostParts = 4096;                // of what a process has put

class PmiStore final : public LauncherStore {
 public:
  PmiStore(UniqueFd fd, int rank, int size) : fd_(std::move(fd)), rank_(rank), size_(size) {}
  ~PmiStore() override {
    // The end of a forked child is not that of this process.
    if (open_ && ::getpid() == owner_) static_cast<void>(ask("finalize", "finalize_ack", soon()));
  }

  Status open() {
    auto begun = ask("init pmi_version=1 pmi_subversion=1", "response_to_init", soon());
    HVD_RETURN_IF_ERROR(begun.status());
    open_ = true;
    auto limits = ask("get_maxes", "maxes", soon());
    HVD_RETURN_IF_ERROR(limits.status());
    // The limits count the zero at the end.
    const auto room = parse_number<std::size_t>((*limits)["vallen_max"]).value_or(0);
    longest_value_ = std::clamp<std::size_t>(room, 1, kLongestValue + 1) - 1;
    auto space = ask("get_my_kvsname", "my_kvsname", soon());
    HVD_RETURN_IF_ERROR(space.status());
    space_ = (*space)["kvsname"];
    if (longest_value_ < kShortestLimit || space_.empty()) {
      return {Code::failed_precondition, "PMI: the launcher has no room for values"};
    }
    return {};
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  // A value goes in parts, for the launcher takes short ones only; the first says how many.
  Result<std::vector<std::string>> gather(std::string_view value, TimePoint deadline) override {
    const std::string name = cat("hvd-", ++gathers_);
    const std::string digits = to_hex(value);
    const std::size_t parts = (digits.size() + longest_value_ - 1) / longest_value_;
    HVD_RETURN_IF_ERROR(put(cat(name, '-', rank_), cat(parts)));
    for (std::size_t part = 0; part < parts; ++part) {
      HVD_RETURN_IF_ERROR(put(cat(name, '-', rank_, '-', part),
                              digits.substr(part * longest_value_, longest_value_)));
    }

    auto met = ask("barrier_in", "barrier_out", deadline);
    if (met.status().code() == Code::deadline_exceeded) {
      open_ = false;  // the answer may still come, in place of another one
      return not_all_came(size_);
    }
    HVD_RETURN_IF_ERROR(met.status());

    std::vector<std::string> values;
    for (int rank = 0; rank < size_; ++rank) {
      auto read = get_parts(cat(name, '-', rank));
      HVD_RETURN_IF_ERROR(read.status().with_context(cat("rank ", rank)));
      values.push_back(std::move(*read));
    }
    return values;
  }

 private:
  using Answer = std::map<std::string, std::string, std::less<>>;
  static constexpr std::size_t kShortestLimit = 32;

  static TimePoint soon() { return Clock::now() + kAnswerLimit; }

  Status put(const std::string& key, const std::string& value) {
    return ask(cat("put kvsname=", space_, " key=", key, " value=", value), "put_result", soon())
        .status();
  }

  Result<std::string> get(const std::string& key) {
    auto answer = ask(cat("get kvsname=", space_, " key=", key), "get_result", soon());
    HVD_RETURN_IF_ERROR(answer.status());
    return (*answer)["value"];
  }

  Result<std::string> get_parts(const std::string& key) {
    auto count = get(key);
    HVD_RETURN_IF_ERROR(count.status());
    const auto parts = parse_number<std::size_t>(*count);
    if (!parts || *parts > kMostParts) {
      return Status(Code::data_loss, "PMI: it has put no number of parts");
    }
    std::string digits;
    for (std::size_t part = 0; part < *parts; ++part) {
      auto next = get(cat(key, '-', part));
      HVD_RETURN_IF_ERROR(next.status());
      digits += *next;
    }
    return from_hex(digits);
  }

  // One question, one answer: "cmd=NAME word=value ...".
  Result<Answer> ask(const std::string& question, std::string_view expected, TimePoint deadline) {
    const std::string what = cat("PMI: ", question.substr(0, question.find(' ')));
    const Status sent = send_all(fd_.get(), cat("cmd=", question, '\n'), deadline);
    HVD_RETURN_IF_ERROR(sent.with_context(what));
    auto line = read_line(deadline);
    HVD_RETURN_IF_ERROR(line.status().with_context(what));

    Answer answer;
    for (const auto& word : split(*line, ' ')) {
      const std::size_t equals = word.find('=');
      if (equals != std::string::npos) answer[word.substr(0, equals)] = word.substr(equals + 1);
    }
    const auto result = answer.find("rc");
    if (answer["cmd"] != expected || (result != answer.end() && result->second != "0")) {
      return Status(Code::failed_precondition,
                    cat(what, ": the launcher answered \"", printable(*line), '"'));
    }
    return answer;
  }

  Result<std::string> read_line(TimePoint deadline) {
    std::size_t end = 0;
    while ((end = received_.find('\n')) == std::string::npos) {
      if (received_.size() > kMostAnswer) return Status(Code::data_loss, "the answer is too long");
      HVD_RETURN_IF_ERROR(wait_for(fd_.get(), POLLIN, deadline));
      std::array<char, 4096> buffer{};
      const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (got < 0) return Status::from_errno("read from the launcher", errno);
      if (got == 0) return Status(Code::unavailable, "the launcher has closed the connection");
      received_.append(buffer.data(), static_cast<std::size_t>(got));
    }
    std::string line = received_.substr(0, end);
    received_.erase(0, end + 1);
    return line;
  }

  UniqueFd fd_;
  const pid_t owner_ = ::getpid();
  const int rank_;
  const int size_;
  std::string space_;  // the launcher's name for the values of this job
  std::size_t longest_value_ = 0;
  std::string received_;
  int gathers_ = 0;
  bool open_ = false;
};

}  // namespace

bool has_pmi(const EnvironmentLookup& lookup) {
  return count_of(lookup, "PMI_FD") && count_of(lookup, "PMI_RANK") && count_of(lookup, "PMI_SIZE");
}

Result<std::unique_ptr<LauncherStore>> open_pmi_store(const EnvironmentLookup& lookup) {
  const int inherited = *count_of(lookup, "PMI_FD");
  // Programs that this one starts must not use the connection.
  UniqueFd fd(::fcntl(inherited, F_DUPFD_CLOEXEC, 3));
  if (!fd) return Status::from_errno(cat("PMI_FD=", inherited), errno);
  auto store = std::make_unique<PmiStore>(std::move(fd), *count_of(lookup, "PMI_RANK"),
                                          *count_of(lookup, "PMI_SIZE"));
  HVD_RETURN_IF_ERROR(store->open());
  return std::unique_ptr<LauncherStore>(std::move(store));
}

}  // namespace hvd::worker
