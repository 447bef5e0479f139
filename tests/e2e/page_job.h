// Fixture of the tests of the status page: a job that has one, and requests to it by hand.
#pragma once

#include <array>
#include <gtest/gtest.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>

#include "base/socket.h"
#include "base/text.h"
#include "tests/e2e/elastic_job.h"

namespace hvd::test {

class PageJobTest : public AskedJobTest {
 protected:
  // The first link in a text of hvdrun; empty: there is none.
  static std::string link_in(const std::string& text) {
    const auto at = text.find("http://");
    return at == std::string::npos ? "" : text.substr(at, text.find_first_of(" \n", at) - at);
  }
  // The link that this job prints when it begins.
  static std::string link_of(Process& job) {
    EXPECT_TRUE(job.wait_for_error("for one browser: http://")) << job.err();
    EXPECT_TRUE(job.wait_for_error("\n", kGenerous, job.err().find("/?key="))) << job.err();
    return link_in(job.err());
  }
  static SocketAddress server_of(const std::string& link) {
    const std::string place = link.substr(std::string("http://").size());
    const auto colon = place.rfind(':', place.find('/'));
    const auto port = place.substr(colon + 1, place.find('/') - colon - 1);
    return {place.substr(0, colon), parse_number<std::uint16_t>(port).value_or(0)};
  }
  static std::string target_of(const std::string& link) { return link.substr(link.find("/?key=")); }

  // Sends these bytes on a connection of their own.
  static UniqueFd send(const SocketAddress& server, const std::string& bytes) {
    auto fd = connect_tcp(server, Clock::now() + kGenerous);
    EXPECT_TRUE(fd.ok()) << fd.status().message();
    if (!fd.ok()) return {};
    EXPECT_TRUE(send_all(fd->get(), bytes, Clock::now() + kGenerous).ok());
    return *std::move(fd);
  }
  // All that comes until the other side closes, or until `text` has come.
  static std::string receive(const UniqueFd& fd, const std::string& text = "") {
    const TimePoint deadline = Clock::now() + kGenerous;
    std::string answer;
    std::array<char, 65536> buffer{};
    while (text.empty() || answer.find(text) == std::string::npos) {
      if (!wait_for(fd.get(), POLLIN, deadline).ok()) break;
      const ssize_t got = ::recv(fd.get(), buffer.data(), buffer.size(), 0);
      if (got <= 0) break;
      answer.append(buffer.data(), static_cast<std::size_t>(got));
    }
    return answer;
  }
  static std::string request(const SocketAddress& server, const std::string& target,
                             const std::string& fields = "") {
    return cat("GET ", target, " HTTP/1.1\r\nHost: ", server.to_string(), "\r\n", fields, "\r\n");
  }
  static std::string get(const SocketAddress& server, const std::string& target,
                         const std::string& fields = "") {
    return receive(send(server, request(server, target, fields)));
  }
  static std::string code_of(const std::string& answer) {
    return answer.size() < 12 ? "none" : answer.substr(9, 3);
  }
  // Opens the link as a browser does, and returns the header with the token.
  static std::string open(const std::string& link) {
    const std::string answer = get(server_of(link), target_of(link));
    EXPECT_EQ(code_of(answer), "303") << answer;
    const std::string name = "Location: /#";
    const auto at = answer.find(name);
    if (at == std::string::npos) return {};
    const auto begin = at + name.size();
    return cat("Authorization: Bearer ", answer.substr(begin, answer.find('\r', begin) - begin),
               "\r\n");
  }
};

}  // namespace hvd::test
