// Another way for the lines of the log (base/log.h) than stderr.
#pragma once

#include <functional>
#include <string>

namespace hvd {

// Gets each line, with its line feed, but for fatal ones, after which the process ends; empty: they
// go to stderr. It is called by one thread at a time and must neither wait nor log. Safe from any
// thread.
void set_log_sink(std::function<void(std::string line)> sink);

}  // namespace hvd
