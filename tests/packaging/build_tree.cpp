// Compiles with the target `hvd` alone, without any include folder of this repository: its own must
// be enough.
#include <hvd/hvd.h>

int main() {
  hvd::init();
  hvd::barrier();
  const int size = hvd::size();
  hvd::shutdown();
  return size == 1 ? 0 : 1;
}
