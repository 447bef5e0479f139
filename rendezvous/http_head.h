// The heads of HTTP/1.x messages, by Beast's parser, without keeping more of them than we use.
// Bodies are read by their Content-Length by the owner of the socket; chunked ones are not
// accepted. For one thread. Includes Beast: only for the few files that speak HTTP.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>

#include "base/status.h"
#include "base/text.h"

namespace hvd::rendezvous {

struct RequestHead {
  std::string method;
  std::string target;
  std::string authorization;
  std::optional<std::uint64_t> content_length;
  bool chunked = false;
  bool keep_alive = false;
  bool http_1_0 = false;
  bool expects_continue = false;
  bool conditional = false;  // If-Match and the like, which we would otherwise silently ignore
};

struct ResponseHead {
  unsigned status = 0;
  std::optional<std::uint64_t> content_length;
  bool keep_alive = false;
  std::string proof;
  std::uint64_t version = 0;
  std::int64_t time = 0;
};

// The part that both kinds share: a parser that stops after the head and fills `Head`, whose memory
// is used again.
template <bool IsRequest, typename Head>
class HeadParser : public boost::beast::http::basic_parser<IsRequest> {
 public:
  HeadParser(Head& head, std::size_t max_header) : head_(head) {
    this->header_limit(static_cast<std::uint32_t>(max_header));
    this->body_limit(boost::none);
  }

  enum class Progress { done, need_more, too_large, malformed };
  // Looks at all bytes that came so far; `used` is how many of them belong to the head, once done.
  Progress feed(std::string_view bytes, std::size_t& used, std::string& reason) {
    namespace http = boost::beast::http;
    boost::beast::error_code error;
    used =
        bytes.empty() ? 0 : this->put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
    if (error == http::error::header_limit) return Progress::too_large;
    if (error && error != http::error::need_more) {
      reason = error.message();
      return Progress::malformed;
    }
    if (!this->is_header_done()) return Progress::need_more;
    if (const auto length = this->content_length()) head_.content_length = *length;
    head_.keep_alive = this->keep_alive();
    return Progress::done;
  }

 protected:
  using Error = boost::beast::error_code;
  using View = boost::beast::string_view;
  using Field = boost::beast::http::field;

  void on_request_impl(boost::beast::http::verb, View, View, int, Error&) override {}
  void on_response_impl(int, View, int, Error&) override {}
  void on_header_impl(Error&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, Error&) override {}
  std::size_t on_body_impl(View, Error&) override { return 0; }
  void on_chunk_header_impl(std::uint64_t, View, Error&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, View, Error&) override { return 0; }
  void on_finish_impl(Error&) override {}

  Head& head_;
};

class RequestParser final : public HeadParser<true, RequestHead> {
 public:
  RequestParser(RequestHead& head, std::size_t max_header) : HeadParser(head, max_header) {
    head.method.clear();
    head.target.clear();
    head.authorization.clear();
    head.content_length.reset();
    head.chunked = head.keep_alive = head.http_1_0 = false;
    head.expects_continue = head.conditional = false;
  }

 private:
  void on_request_impl(boost::beast::http::verb, View method, View target, int version,
                       Error&) override {
    head_.method.assign(method.data(), method.size());
    head_.target.assign(target.data(), target.size());
    head_.http_1_0 = version == 10;
  }
  void on_field_impl(Field name, View, View value, Error& error) override {
    switch (name) {
      case Field::authorization:
        // With two of them, a proxy might see another request than we do.
        if (!head_.authorization.empty()) {
          error = boost::beast::http::make_error_code(boost::beast::http::error::bad_field);
          return;
        }
        head_.authorization.assign(value.data(), value.size());
        break;
      case Field::transfer_encoding:
        head_.chunked = true;
        break;
      case Field::expect:
        head_.expects_continue = boost::beast::iequals(value, "100-continue");
        break;
      case Field::if_match:
      case Field::if_none_match:
      case Field::if_modified_since:
      case Field::if_unmodified_since:
      case Field::range:
        head_.conditional = true;
        break;
      default:
        break;
    }
  }
};

class ResponseParser final : public HeadParser<false, ResponseHead> {
 public:
  ResponseParser(ResponseHead& head, std::size_t max_header) : HeadParser(head, max_header) {
    head = ResponseHead();
  }

 private:
  void on_response_impl(int status, View, int, Error&) override {
    head_.status = static_cast<unsigned>(status);
  }
  void on_field_impl(Field, View name, View value, Error& error) override {
    namespace beast = boost::beast;
    const std::string_view text(value.data(), value.size());
    const auto wrong = [&error] { error = make_error_code(beast::http::error::bad_value); };
    if (beast::iequals(name, "Hvd-Proof")) {
      head_.proof = text;
    } else if (beast::iequals(name, "Hvd-Version")) {
      const auto version = parse_number<std::uint64_t>(text);
      if (!version) return wrong();
      head_.version = *version;
    } else if (beast::iequals(name, "Hvd-Time")) {
      const auto time = parse_number<std::int64_t>(text);
      if (!time) return wrong();
      head_.time = *time;
    }
  }
};

}  // namespace hvd::rendezvous
