// A host as a job was told of it: its room, and how it is reached. A value.
#pragma once

#include <string>

namespace hvd::driver {

struct HostSlots {
  std::string name;  // by which the job knows it; unique
  int slots = 1;
  // How it is reached, where that is not its name: "me@10.0.0.7", port 2222. With a user or a port
  // it is reached by SSH even if it is this machine.
  std::string destination = {};
  std::string user = {};
  int port = 0;
  std::string advertise_address = {};  // where the others reach its workers, if that is known

  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

}  // namespace hvd::driver
