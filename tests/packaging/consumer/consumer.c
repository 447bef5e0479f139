/* The same in C: a stranger's program over the C API. */
#include <stdint.h>
#include <stdio.h>

#include <hvd/c_api.h>

int main(void) {
  if (hvd_init(NULL) != 0) {
    fprintf(stderr, "hvd_init: %s\n", hvd_last_error());
    return 1;
  }
  printf("consumer %d of %d\n", hvd_rank(), hvd_size());
  return hvd_shutdown() == 0 ? 0 : 1;
}
