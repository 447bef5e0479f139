/* SPDX-License-Identifier: Apache-2.0
 * All workers average a vector of numbers. Each of them prints its rank and the result. */
#include <stdio.h>

#include <hvd/c_api.h>

int main(void) {
  float gradients[1000];
  const int64_t shape[] = {1000};
  hvd_tensor tensor = HVD_TENSOR_OF(gradients, shape, 1, HVD_FLOAT32, HVD_HOST);
  hvd_options options = HVD_OPTIONS_INIT; /* the average is the default */
  int code = hvd_init(NULL);

  options.name = "gradients";
  for (int i = 0; i < 1000; ++i) gradients[i] = (float)(hvd_rank() + 1);
  if (code == HVD_OK) code = hvd_allreduce(&tensor, NULL, &options);
  if (code != HVD_OK) {
    fprintf(stderr, "average: %s\n", hvd_last_error());
    return 1;
  }
  printf("rank %d of %d: the average is %g\n", hvd_rank(), hvd_size(), gradients[0]);
  return hvd_shutdown() == HVD_OK ? 0 : 1;
}
