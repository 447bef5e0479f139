#include "cmd/hvdrun/job_questions.h"

#include <cerrno>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <queue>
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
constexpr std::size_t kMaxStatus = std::size_t{64} << 20;  // tens of thousands of workers

struct Answer {
  unsigned status = 0;
  std::string text;
};

class Question {
 public:
  Question(asio::io_context& io, http::verb method, const std::string& target, std::string body)
      : stream_(io) {
    request_.method(method);
    request_.target(target);
    request_.version(11);
    request_.set(http::field::host, "hvdrun");
    request_.body() = std::move(body);
    request_.prepare_payload();
    parser_.body_limit(kMaxStatus);
  }

  // Calls `on_end` when there is an answer, or an error.
  void ask(const driver::JobSocket& job, TimePoint deadline, std::function<void()> on_end) {
    on_end_ = std::move(on_end);
    stream_.expires_at(deadline);
    stream_.async_connect(Local::endpoint(job.path), [this, owner = job.owner](error_code error) {
      if (error) return end(error);
      // The file may have been replaced by a link since it was looked at.
      const auto peer = unix_peer(stream_.socket().native_handle());
      if (!peer || peer->uid != owner) return end(asio::error::no_permission);
      http::async_write(stream_, request_, [this](error_code sent, std::size_t /*size*/) {
        if (sent) return end(sent);
        http::async_read(stream_, buffer_, parser_,
                         [this](error_code got, std::size_t /*size*/) { end(got); });
      });
    });
  }

  error_code error() const { return error_; }
  Answer answer() const { return {parser_.get().result_int(), parser_.get().body()}; }

 private:
  void end(error_code error) {
    error_ = error;
    stream_.close();
    on_end_();
  }

  beast::basic_stream<Local> stream_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  error_code error_;
  std::function<void()> on_end_;
};

// The bytes of the answer.
Result<std::string> result_of(const Question& question, const driver::JobSocket& job) {
  const error_code error = question.error();
  if (error == beast::error::timeout) {
    return Status(Code::unavailable,
                  cat("job ", job.job_id, ": no answer within ", kAnswerTime.count(), " s at ",
                      job.path, "; its hvdrun may be stopped (kill -CONT lets it go on)"));
  }
  if (error == asio::error::no_permission) {
    return Status(Code::permission_denied, cat("job ", job.job_id, ": ", job.path,
                                               " does not lead to a program of its owner"));
  }
  if (error) {
    const bool is_gone = error == asio::error::connection_refused || error.value() == ENOENT;
    return Status(is_gone ? Code::not_found : Code::unavailable,
                  cat("job ", job.job_id, ": ", error.message()));
  }
  Answer answer = question.answer();
  if (answer.status != 200) {
    return Status(Code::failed_precondition,
                  cat("job ", job.job_id, ": ", printable(trim(answer.text))));
  }
  return std::move(answer.text);
}

Result<std::string> ask(const driver::JobSocket& job, const std::string& method,
                        const std::string& target, std::string body) {
  asio::io_context io;
  Question question(io, http::string_to_verb(method), target, std::move(body));
  question.ask(job, Clock::now() + kAnswerTime, [] {});
  io.run();
  return result_of(question, job);
}

// Asks all of them for their status at the same time, so that silent ones hold up nothing.
class StatusRound {
 public:
  explicit StatusRound(const std::vector<driver::JobSocket>& sockets) : sockets_(sockets) {
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
      questions_.push_back(std::make_unique<Question>(io_, http::verb::get, "/status", ""));
      queues_[directory_of(sockets_[i])].push(i);
    }
  }

  // In the order of the sockets.
  std::vector<Result<std::string>> run() {
    for (auto& [directory, queue] : queues_) {
      for (std::size_t i = 0; i < kAtOnce; ++i) ask_next(queue);
    }
    io_.run();
    std::vector<Result<std::string>> answers;
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
      answers.push_back(result_of(*questions_[i], sockets_[i]));
    }
    return answers;
  }

 private:
  // Of one directory, since this process can have only so many connections, and no user may take
  // them all.
  static constexpr std::size_t kAtOnce = 64;

  static std::string directory_of(const driver::JobSocket& socket) {
    return socket.path.substr(0, socket.path.rfind('/'));
  }

  void ask_next(std::queue<std::size_t>& queue) {
    if (queue.empty()) return;
    const std::size_t next = queue.front();
    queue.pop();
    questions_[next]->ask(sockets_[next], deadline_, [this, &queue] { ask_next(queue); });
  }

  const TimePoint deadline_ = Clock::now() + kAnswerTime;
  const std::vector<driver::JobSocket>& sockets_;
  asio::io_context io_;
  std::vector<std::unique_ptr<Question>> questions_;
  std::map<std::string, std::queue<std::size_t>> queues_;  // of those not asked yet, by directory
};

Result<nlohmann::json> parse_status(const driver::JobSocket& job,
                                    const Result<std::string>& answer) {
  if (!answer.ok()) return answer.status();
  // json::dump() calls itself for what is nested, and a stack is finite.
  const auto is_shallow = [](int depth, auto /*event*/, auto& /*part*/) { return depth < 32; };
  auto status = nlohmann::json::parse(*answer, is_shallow, false);
  if (!is_job_status(status)) {
    return Status(Code::data_loss, cat("job ", job.job_id,
                                       ": its answer is not the status of a job (is its hvdrun of "
                                       "another version?)"));
  }
  return status;
}

}  // namespace

Result<std::string> ask_job(const driver::JobSocket& job, const std::string& method,
                            const std::string& target, std::string body) {
  auto answer = ask(job, method, target, std::move(body));
  if (!answer.ok()) return answer.status();
  return printable_lines(*answer);
}

Result<nlohmann::json> ask_status(const driver::JobSocket& job) {
  return parse_status(job, ask(job, "GET", "/status", {}));
}

std::vector<FoundJob> find_jobs(const std::string& wanted) {
  auto sockets = driver::find_job_sockets();
  std::erase_if(sockets, [&](const auto& socket) { return !socket.job_id.starts_with(wanted); });
  const auto answers = StatusRound(sockets).run();
  std::vector<FoundJob> found;
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    auto status = parse_status(sockets[i], answers[i]);
    if (status.status().code() == Code::not_found) continue;
    found.push_back({std::move(sockets[i]), std::move(status)});
  }
  return found;
}

Result<FoundJob> find_job(const std::string& wanted) {
  std::vector<FoundJob> fitting = find_jobs(wanted);
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
    const bool is_silent = one.status.status().code() == Code::unavailable;
    ids.push_back(cat(one.socket.job_id, is_silent ? " (does not answer)" : ""));
  }
  return Status(
      Code::invalid_argument,
      cat(fitting.size(), wanted.empty() ? " jobs run" : " jobs have an id that begins so", ": ",
          join(ids, ", "), "; name one of them"));
}

}  // namespace hvd::cli
