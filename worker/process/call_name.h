// The name of a call: the one that the program gives, or the next number of such calls. The ranks
// match unnamed calls by their numbers, so one that is refused on this rank before the others were
// asked must not count: unless the name is kept, its number goes back. A call that is refused
// because this rank is not in the process set counts: it does on the ranks of the set.
#pragma once

#include <string>
#include <string_view>

#include <hvd/process_set.h>

namespace hvd::worker {

class CallName {
 public:
  CallName(const std::string& given, std::string_view call, const ProcessSet& set);
  ~CallName();
  CallName(const CallName&) = delete;
  CallName& operator=(const CallName&) = delete;

  const std::string& text() const { return text_; }
  // The call is under way.
  void keep() { goes_back_ = false; }

 private:
  const std::string call_;
  const std::string text_;
  bool goes_back_;
};

}  // namespace hvd::worker
