#include "driver/job/preflight.h"

#include <cerrno>

namespace hvd::driver {

std::string_view name_of(Step step) {
  switch (step) {
    case Step::resolve:
      return "resolve";
    case Step::connect:
      return "connect";
    case Step::host_key:
      return "host key";
    case Step::authenticate:
      return "authenticate";
    case Step::start_agent:
      return "start agent";
    case Step::copy_agent:
      return "copy agent";
    case Step::change_directory:
      return "change directory";
    case Step::find_program:
      return "find program";
    case Step::reach:
      return "reach";
    case Step::run_workers:
      return "run workers";
  }
  return "unknown step";
}

int exit_code_of_failed_start(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return 127;
    case EACCES:
    case EPERM:
    case ENOEXEC:
    case EISDIR:
      return 126;
    default:
      return 1;
  }
}

}  // namespace hvd::driver
