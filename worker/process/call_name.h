// The name of a call: the one that the program gives, or the next number in its series. The members
// of a process set match unnamed calls by their numbers, so one that is refused on this rank before
// the others were asked must not count: unless the name is kept, its number goes back.
#pragma once

#include <string>

#include "worker/process/current_world.h"

namespace hvd::worker {

class CallName {
 public:
  CallName(const std::string& given, CallSeries series);
  ~CallName();
  CallName(const CallName&) = delete;
  CallName& operator=(const CallName&) = delete;

  const std::string& text() const { return text_; }
  // The call is under way.
  void keep() { goes_back_ = false; }

 private:
  const CallSeries series_;
  const std::string text_;
  bool goes_back_;
};

}  // namespace hvd::worker
