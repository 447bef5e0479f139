/* SPDX-License-Identifier: Apache-2.0
 * Does a number of steps (1,000, or the first argument) in a job whose workers may come and go. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <hvd/c_api.h>

struct training {
  hvd_state state;
  int64_t step;
  int64_t steps;
  double weight;
};

static int train(void* data) {
  struct training* training = data;
  hvd_options options = HVD_OPTIONS_INIT;
  options.name = "gradient";
  printf("rank %d of %d: from step %lld\n", hvd_rank(), hvd_size(), (long long)training->step);
  fflush(stdout);

  while (training->step < training->steps) {
    double gradient = 1; /* the work of a real step */
    const hvd_tensor tensor = HVD_TENSOR_OF(&gradient, NULL, 0, HVD_FLOAT64, HVD_HOST);
    usleep(10000);
    int code = hvd_allreduce(&tensor, NULL, &options);
    if (code == HVD_OK) {
      training->weight += gradient;
      ++training->step;
      code = hvd_state_commit(training->state); /* from here on this step is not lost */
    }
    if (code != HVD_OK) return code; /* hvd_elastic_run() calls again if the world has changed */
  }
  return HVD_OK;
}

int main(int argc, char** argv) {
  struct training training = {0, 0, argc > 1 ? atoi(argv[1]) : 1000, 0};
  int code = hvd_init(NULL);
  if (code == HVD_OK) code = hvd_state_create(NULL, &training.state);
  if (code == HVD_OK) {
    code = hvd_state_add_memory(training.state, "step", &training.step, sizeof(training.step));
  }
  if (code == HVD_OK) {
    code =
        hvd_state_add_memory(training.state, "weight", &training.weight, sizeof(training.weight));
  }
  if (code == HVD_OK) code = hvd_elastic_run(training.state, train, &training, NULL);
  if (code != HVD_OK) {
    fprintf(stderr, "count: %s\n", hvd_last_error());
    return 1;
  }

  if (hvd_rank() == 0) printf("step %lld, weight %g\n", (long long)training.step, training.weight);
  hvd_state_release(training.state);
  return hvd_shutdown() == HVD_OK ? 0 : 1;
}
