#include "driver/status/control_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "base/descriptors.h"
#include "base/security/unix_peer.h"
#include "base/text.h"
#include "driver/status/job_sockets.h"

namespace hvd::driver {
namespace {

constexpr std::chrono::seconds kLookEvery{2};
constexpr const char* kRequests =
    "GET /status, GET /metrics, POST /page, POST /dump, POST /stop, POST /drain, POST /undrain, "
    "POST /scale, POST /token\n";

bool may_ask(int socket) {
  const auto peer = unix_peer(socket);
  return peer && (peer->uid == ::geteuid() || peer->uid == 0);
}

// `path` fits.
sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

// Nothing if there is no such file.
std::optional<std::pair<dev_t, ino_t>> file_at(const std::string& path) {
  struct stat about {};
  if (::lstat(path.c_str(), &about) != 0) return std::nullopt;
  return std::pair(about.st_dev, about.st_ino);
}

UniqueFd unix_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Whether nobody listens there any more.
bool is_abandoned(const std::string& path) {
  const UniqueFd fd = unix_socket();
  const sockaddr_un address = address_of(path);
  return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
         errno == ECONNREFUSED;
}

// Only this user can connect to it.
Result<UniqueFd> listen_at(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return Status(Code::invalid_argument, cat(path, " is too long for a socket"));
  }
  UniqueFd fd = unix_socket();
  // It gets its name when it listens: until then another hvdrun would take it for abandoned.
  const std::string unnamed = path.substr(0, path.rfind('.'));
  const sockaddr_un address = address_of(unnamed);
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Status::from_errno(cat("bind ", path), errno);
  }
  ::chmod(unnamed.c_str(), 0600);
  if (::listen(fd.get(), SOMAXCONN) != 0 || ::rename(unnamed.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(unnamed.c_str());
    return Status::from_errno(cat("listen at ", path), error);
  }
  return fd;
}

}  // namespace

ControlServer::ControlServer(boost::asio::io_context& io, Callbacks callbacks)
    : io_(io), callbacks_(std::move(callbacks)), next_look_(io) {}

ControlServer::~ControlServer() {
  if (has_file()) ::unlink(path_.c_str());
}

Status ControlServer::start(const std::string& job_id) {
  job_id_ = job_id;
  for (const auto& socket : find_job_sockets()) {
    if (socket.owner == ::geteuid() && is_abandoned(socket.path)) ::unlink(socket.path.c_str());
  }
  HVD_RETURN_IF_ERROR(listen());
  look_after_file();
  return {};
}

Status ControlServer::listen() {
  auto directory = job_socket_directory();
  HVD_RETURN_IF_ERROR(directory.status());
  const std::string path = job_socket_path(*directory, job_id_);
  auto listening = listen_at(path);
  HVD_RETURN_IF_ERROR(listening.status());
  path_ = path;
  file_ = file_at(path).value_or(std::pair<dev_t, ino_t>());
  listener_ = std::make_unique<HttpListener>(
      io_, [this](const HttpRequest& request, const HttpListener::Answer& answer_to) {
        answer(request, answer_to);
      });
  return listener_->start(*std::move(listening));
}

bool ControlServer::has_file() const { return !path_.empty() && file_at(path_) == file_; }

void ControlServer::look_after_file() {
  next_look_.expires_after(kLookEvery);
  next_look_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    // Where no socket can be made now, the next look tries again.
    if (!has_file()) static_cast<void>(listen());
    look_after_file();
  });
}

// Null: no change is asked for there.
const ControlServer::Callbacks::Change* ControlServer::change_at(std::string_view target) const {
  if (target == "/drain") return &callbacks_.drain;
  if (target == "/undrain") return &callbacks_.undrain;
  if (target == "/token") return &callbacks_.token;
  return target == "/scale" ? &callbacks_.scale : nullptr;
}

void ControlServer::answer(const HttpRequest& request, const HttpListener::Answer& answer) {
  const std::string asked = cat(request.method, " ", request.target);
  const Callbacks::Change* const change = change_at(request.target);

  if (!may_ask(request.socket)) {
    answer({403, "this job belongs to another user\n"});
  } else if (asked == "GET /status") {
    answer({200, callbacks_.status(), "application/json"});
  } else if (asked == "GET /metrics") {
    answer(callbacks_.metrics());
  } else if (asked == "POST /page") {
    const std::string link = callbacks_.page_link();
    if (link.empty()) return answer({409, "it has no status page: --status-page starts one\n"});
    answer({200, cat(link, "\n")});
  } else if (asked == "POST /stop") {
    answer({200, "stopping\n"});
    callbacks_.stop();
  } else if (asked == "POST /dump") {
    callbacks_.dump([answer](std::string_view text) { answer({200, cat(text, "\n")}); });
  } else if (change != nullptr && request.method == "POST") {
    (*change)(request.body, [answer](bool accepted, std::string_view text) {
      answer({accepted ? 200U : 409U, cat(text, "\n")});
    });
  } else {
    const std::array posted{"/page", "/dump", "/stop"};
    const bool is_read = request.target == "/status" || request.target == "/metrics";
    const bool is_known = is_read || change != nullptr ||
                          std::find(posted.begin(), posted.end(), request.target) != posted.end();
    HttpReply refusal{is_known ? 405U : 404U, kRequests};
    if (is_known) refusal.fields = {{"Allow", is_read ? "GET" : "POST"}};
    answer(std::move(refusal));
  }
}

}  // namespace hvd::driver
