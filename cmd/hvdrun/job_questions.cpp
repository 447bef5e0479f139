#include "cmd/hvdrun/job_questions.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <queue>
#include <string_view>
#include <unistd.h>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "base/clock.h"
#include "base/printable.h"
#include "base/security/unix_peer.h"
#include "base/text.h"
#include "cmd/hvdrun/status_text.h"

namespace hvd::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Local = asio::local::stream_protocol;

constexpr std::chrono::seconds kAnswerTime{10};
constexpr std::size_t kMostOfRefusal = 1000;  // bytes that are shown

struct Limits {
  std::size_t answer;  // bytes of one answer
  std::size_t all;     // of the answers in one directory, and what is kept of them, together
  // Connections to one directory, since this process can have only so many, and no user may take
  // them all.
  std::size_t at_once;
};

// For root the answers may come from another user's program, which must not fill its memory.
Limits limits_of(uid_t owner) {
  constexpr std::size_t kMegabyte = std::size_t{1} << 20;
  constexpr Limits kOwn{64 * kMegabyte, std::numeric_limits<std::size_t>::max(), 64};
  constexpr Limits kForeign{4 * kMegabyte, 64 * kMegabyte, 16};  // thousands of workers
  return owner == ::geteuid() ? kOwn : kForeign;
}

Status no_answer(const driver::JobSocket& job) {
  return {Code::unavailable,
          cat("job ", job.job_id, ": no answer within ", kAnswerTime.count(), " s at ", job.path,
              "; its hvdrun may be stopped (kill -CONT lets it go on)")};
}

Status too_much(const driver::JobSocket& job) {
  return {Code::resource_exhausted,
          cat("job ", job.job_id, ": the answers in its directory are larger than ",
              with_thousands(limits_of(job.owner).all), " bytes together")};
}

class Question : public std::enable_shared_from_this<Question> {
 public:
  Question(asio::io_context& io, driver::JobSocket job, http::verb method,
           const std::string& target, std::string body)
      : job_(std::move(job)), stream_(io) {
    request_.method(method);
    request_.target(target);
    request_.version(11);
    request_.set(http::field::host, "hvdrun");
    request_.body() = std::move(body);
    request_.prepare_payload();
    parser_.body_limit(limits_of(job_.owner).answer);
  }

  // Calls `on_end` when there is an answer, or an error.
  void ask(TimePoint deadline, std::function<void(Question&)> on_end) {
    on_end_ = std::move(on_end);
    stream_.expires_at(deadline);
    stream_.async_connect(Local::endpoint(job_.path),
                          [self = shared_from_this()](error_code error) {
                            if (error) return self->end(error);
                            if (!self->leads_to_owner())
                              return self->end(asio::error::no_permission);
                            self->send();
                          });
  }

  // Bytes of the answer, also of one that was broken off.
  std::size_t received() const { return parser_.get().body().size(); }

  // The process that listens there, as the system knows it; 0: it is not visible from here.
  pid_t listener() const { return listener_; }
  const driver::JobSocket& job() const { return job_; }

  // The body of the answer, or why there is none. May be called once, after the end.
  Result<std::string> take_answer() {
    if (error_) return error_status();
    if (parser_.get().result_int() == 200) return std::move(parser_.get().body());
    const std::string_view why = trim(parser_.get().body());
    return Status(Code::failed_precondition,
                  cat("job ", job_.job_id, ": ", printable(why.substr(0, kMostOfRefusal))));
  }

 private:
  // The most that the head of an answer may take, and the pieces that its body is cut into.
  static constexpr std::size_t kBuffer = 65'536;

  // The file may have been replaced by a link since it was looked at.
  bool leads_to_owner() {
    const auto peer = unix_peer(stream_.socket().native_handle());
    if (peer) listener_ = peer->pid;
    return peer && peer->uid == job_.owner;
  }

  void send() {
    http::async_write(
        stream_, request_, [self = shared_from_this()](error_code sent, std::size_t /*size*/) {
          if (sent) return self->end(sent);
          http::async_read(self->stream_, self->buffer_, self->parser_,
                           [self](error_code got, std::size_t /*size*/) { self->end(got); });
        });
  }

  void end(error_code error) {
    error_ = error;
    stream_.close();
    on_end_(*this);
  }

  Status error_status() const {
    const std::string job = cat("job ", job_.job_id, ": ");
    if (error_ == beast::error::timeout) return no_answer(job_);
    if (error_ == asio::error::no_permission) {
      return {Code::permission_denied,
              cat(job, job_.path, " does not lead to a program of its owner")};
    }
    if (error_ == http::error::body_limit) {
      return {Code::resource_exhausted,
              cat(job, "its answer is larger than ", with_thousands(limits_of(job_.owner).answer),
                  " bytes")};
    }
    const bool is_gone = error_ == asio::error::connection_refused || error_.value() == ENOENT;
    return {is_gone ? Code::not_found : Code::unavailable, cat(job, error_.message())};
  }

  const driver::JobSocket job_;
  beast::basic_stream<Local> stream_;
  beast::flat_buffer buffer_{kBuffer};
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  error_code error_;
  pid_t listener_ = 0;
  std::function<void(Question&)> on_end_;
};

// What `take` makes of the answer.
template <typename T>
Result<T> ask(const driver::JobSocket& job, const std::string& method, const std::string& target,
              std::string body, Result<T> (*take)(Question&)) {
  asio::io_context io;
  Result<T> answer = no_answer(job);
  std::make_shared<Question>(io, job, http::string_to_verb(method), target, std::move(body))
      ->ask(Clock::now() + kAnswerTime, [&](Question& question) { answer = take(question); });
  io.run();
  return answer;
}

Result<std::string> take_answer(Question& question) { return question.take_answer(); }

// The id of the job and the process of its hvdrun are those of the socket: root may ask a program
// that only pretends to be a job, to have root stop another one or signal another process.
Result<nlohmann::json> take_status(Question& question) {
  const driver::JobSocket& job = question.job();
  const auto answer = question.take_answer();
  if (!answer.ok()) return answer.status();
  // json::dump() calls itself for what is nested, and a stack is finite.
  const auto is_shallow = [](int depth, auto /*event*/, auto& /*part*/) { return depth < 32; };
  auto status = nlohmann::json::parse(*answer, is_shallow, false);
  if (!is_job_status(status)) {
    return Status(Code::data_loss, cat("job ", job.job_id,
                                       ": its answer is not the status of a job (is its hvdrun of "
                                       "another version?)"));
  }
  status["job"] = job.job_id;
  if (question.listener() > 0) status["pid"] = question.listener();
  return status;
}

// Asks all of them for their status at the same time, so that silent ones hold up nothing. Of each
// answer only what the caller keeps stays in memory.
class StatusRound {
 public:
  StatusRound(std::vector<driver::JobSocket> sockets, const KeptOfStatus& keep) : keep_(keep) {
    for (auto& socket : sockets) {
      const auto [directory, is_new] = directories_.try_emplace(directory_of(socket));
      const Limits limits = limits_of(socket.owner);
      if (is_new) directory->second = {{}, limits.all, limits.at_once};
      directory->second.waiting.push(found_.size());
      Status unanswered = no_answer(socket);
      found_.push_back({std::move(socket), std::move(unanswered)});
    }
  }

  // In the order of the sockets.
  std::vector<FoundJob> run() {
    for (auto& [name, directory] : directories_) {
      for (std::size_t i = 0; i < directory.at_once; ++i) ask_next(directory);
    }
    io_.run();
    return std::move(found_);
  }

 private:
  struct Directory {
    std::queue<std::size_t> waiting;  // those in found_ that have not been asked yet
    std::size_t bytes_left = 0;
    std::size_t at_once = 0;
  };

  static std::string directory_of(const driver::JobSocket& socket) {
    return socket.path.substr(0, socket.path.rfind('/'));
  }

  void ask_next(Directory& directory) {
    if (directory.waiting.empty() || Clock::now() >= deadline_) return;
    if (directory.bytes_left == 0) return refuse_rest(directory);
    FoundJob& job = found_[directory.waiting.front()];
    directory.waiting.pop();
    std::make_shared<Question>(io_, job.socket, http::verb::get, "/status", "")
        ->ask(deadline_, [this, &directory, &job](Question& question) {
          job.kept = take(question, job.socket, directory);
          ask_next(directory);
        });
  }

  void refuse_rest(Directory& directory) {
    for (; !directory.waiting.empty(); directory.waiting.pop()) {
      FoundJob& job = found_[directory.waiting.front()];
      job.kept = too_much(job.socket);
    }
  }

  // Parsing an answer takes time, too, and counts against the deadline.
  Result<std::vector<std::string>> take(Question& question, const driver::JobSocket& job,
                                        Directory& directory) const {
    if (!spend(question.received(), directory)) return too_much(job);
    if (Clock::now() >= deadline_) return no_answer(job);
    const auto status = take_status(question);
    if (!status.ok()) return status.status();
    auto kept = keep_(*status);
    if (!kept.ok()) return kept;
    std::size_t size = 0;
    for (const auto& text : *kept) size += text.size();
    if (!spend(size, directory)) return too_much(job);
    return kept;
  }

  // False: they are more than are left.
  static bool spend(std::size_t bytes, Directory& directory) {
    const bool fits = bytes <= directory.bytes_left;
    directory.bytes_left -= std::min(bytes, directory.bytes_left);
    return fits;
  }

  const TimePoint deadline_ = Clock::now() + kAnswerTime;
  const KeptOfStatus& keep_;
  asio::io_context io_;
  std::vector<FoundJob> found_;
  std::map<std::string, Directory> directories_;
};

}  // namespace

Result<std::string> ask_job(const driver::JobSocket& job, const std::string& method,
                            const std::string& target, std::string body) {
  auto answer = ask(job, method, target, std::move(body), take_answer);
  if (!answer.ok()) return answer.status();
  return printable_lines(*answer);
}

Result<nlohmann::json> ask_status(const driver::JobSocket& job) {
  return ask(job, "GET", "/status", {}, take_status);
}

std::vector<FoundJob> find_jobs(const std::string& wanted, const KeptOfStatus& keep) {
  auto sockets = driver::find_job_sockets();
  std::erase_if(sockets, [&](const auto& socket) { return !socket.job_id.starts_with(wanted); });
  std::vector<FoundJob> found = StatusRound(std::move(sockets), keep).run();
  std::erase_if(found, [](const auto& one) { return one.kept.status().code() == Code::not_found; });
  return found;
}

Result<FoundJob> find_job(const std::string& wanted, const KeptOfStatus& keep) {
  std::vector<FoundJob> fitting = find_jobs(wanted, keep);
  if (fitting.size() == 1) return std::move(fitting.front());
  if (fitting.empty()) {
    return Status(Code::not_found, wanted.empty()
                                       ? std::string("no job of this user runs on this machine")
                                       : cat("no job ", quoted(wanted),
                                             " of this user runs on this machine; hvdrun jobs "
                                             "lists those that do"));
  }
  std::vector<std::string> ids;
  for (const auto& one : fitting) {
    const bool is_silent = one.kept.status().code() == Code::unavailable;
    ids.push_back(cat(one.socket.job_id, is_silent ? " (does not answer)" : ""));
  }
  return Status(
      Code::invalid_argument,
      cat(fitting.size(), wanted.empty() ? " jobs run" : " jobs have an id that begins so", ": ",
          join(ids, ", "), "; name one of them"));
}

}  // namespace hvd::cli
