// hvd_rendezvous_standalone ADDRESS:PORT TOKEN_FILE
#include <cstdio>

#include "rendezvous/standalone.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto bind = hvd::rendezvous::parse_bind_address(argv[1]);
  if (!bind.ok()) {
    std::fprintf(stderr, "%s\n", bind.status().message().c_str());
    return 2;
  }
  hvd::rendezvous::StandaloneOptions options;
  options.bind = *bind;
  options.token_file = argv[2];
  return hvd::rendezvous::serve_forever(options);
}
