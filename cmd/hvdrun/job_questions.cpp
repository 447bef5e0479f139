#include "cmd/hvdrun/job_questions.h"

#include <cerrno>
#include <chrono>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "base/printable.h"
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

  void ask(const std::string& path) {
    stream_.expires_after(kAnswerTime);
    stream_.async_connect(Local::endpoint(path), [this](error_code error) {
      if (failed(error)) return;
      http::async_write(stream_, request_, [this](error_code sent, std::size_t /*size*/) {
        if (failed(sent)) return;
        http::async_read(stream_, buffer_, parser_,
                         [this](error_code got, std::size_t /*size*/) { failed(got); });
      });
    });
  }

  error_code error() const { return error_; }
  Answer answer() const { return {parser_.get().result_int(), parser_.get().body()}; }

 private:
  bool failed(error_code error) {
    error_ = error;
    return error.failed();
  }

  beast::basic_stream<Local> stream_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  error_code error_;
};

// The bytes of its answer.
Result<std::string> ask(const driver::JobSocket& job, const std::string& method,
                        const std::string& target, std::string body) {
  asio::io_context io;
  Question question(io, http::string_to_verb(method), target, std::move(body));
  question.ask(job.path);
  io.run();
  if (const error_code error = question.error()) {
    const bool is_gone = error == asio::error::connection_refused || error.value() == ENOENT;
    const std::string why = error == beast::error::timeout ? "it does not answer" : error.message();
    return Status(is_gone ? Code::not_found : Code::unavailable,
                  cat("job ", job.job_id, ": ", why));
  }
  Answer answer = question.answer();
  if (answer.status != 200) {
    return Status(Code::failed_precondition,
                  cat("job ", job.job_id, ": ", printable(trim(answer.text))));
  }
  return std::move(answer.text);
}

}  // namespace

Result<std::string> ask_job(const driver::JobSocket& job, const std::string& method,
                            const std::string& target, std::string body) {
  auto answer = ask(job, method, target, std::move(body));
  if (!answer.ok()) return answer.status();
  return printable_lines(*answer);
}

Result<nlohmann::json> ask_status(const driver::JobSocket& job) {
  const auto answer = ask(job, "GET", "/status", {});
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

std::vector<FoundJob> find_jobs(const std::string& wanted) {
  std::vector<FoundJob> found;
  for (auto& socket : driver::find_job_sockets()) {
    if (!socket.job_id.starts_with(wanted)) continue;
    auto status = ask_status(socket);
    if (status.status().code() == Code::not_found) continue;
    found.push_back({std::move(socket), std::move(status)});
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
  for (const auto& one : fitting) ids.push_back(one.socket.job_id);
  return Status(
      Code::invalid_argument,
      cat(fitting.size(), wanted.empty() ? " jobs run" : " jobs have an id that begins so", ": ",
          join(ids, ", "), "; name one of them"));
}

}  // namespace hvd::cli
