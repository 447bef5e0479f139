/* An elastic worker in strict C11, for tests/worker/c_elastic_test.cpp.
 *
 *   c_elastic_program train    trains 20 steps; rank 1 of the first world kills itself in step 5
 *   c_elastic_program turns    the same, with the loop in the program
 *   c_elastic_program sets     rank 1 of the first world kills itself, and sets of it shrink or not
 *   c_elastic_program codes    what callbacks return, and what is refused, in a world of one
 */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hvd/c_api.h>

#define CHECK(condition)                                                                    \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, hvd_last_error()); \
      exit(3);                                                                              \
    }                                                                                       \
  } while (0)

enum { kSteps = 20, kSamples = 1000, kBatch = 2 };

/* --- training ------------------------------------------------------------------------------ */

struct training {
  hvd_state state;
  hvd_sampler sampler;
  int64_t step;
  double total;  /* of what the steps have added up */
  char note[32]; /* kept by a handler of the program's own */
  int resets;
  int has_given_up;
};

static int note_bytes(void* data, size_t* bytes) {
  *bytes = strlen(((struct training*)data)->note) + 1;
  return HVD_OK;
}

static int save_note(void* data, void* into, size_t bytes) {
  memcpy(into, ((struct training*)data)->note, bytes);
  return HVD_OK;
}

static int load_note(void* data, const void* from, size_t bytes) {
  struct training* const training = data;
  CHECK(bytes <= sizeof(training->note));
  memcpy(training->note, from, bytes);
  return HVD_OK;
}

static int count_reset(void* data) {
  ++((struct training*)data)->resets;
  return HVD_OK;
}

static int train(void* data) {
  struct training* const training = data;
  uint64_t generation = 0;
  CHECK(hvd_generation(&generation) == HVD_OK);

  while (training->step < kSteps) {
    int64_t indices[kBatch];
    CHECK(hvd_sampler_next(training->sampler, kBatch, indices) == kBatch);
    if (training->step == 3 && hvd_rank() == 0 && !training->has_given_up) {
      training->has_given_up = 1;
      return hvd_fail(HVD_ERROR_COLLECTIVE, "the loss is not a number");
    }
    if (generation == 1 && training->step == 5 && hvd_rank() == 1) raise(SIGKILL);

    double one = 1;
    const hvd_tensor tensor = HVD_TENSOR_OF(&one, NULL, 0, HVD_FLOAT64, HVD_HOST);
    hvd_options options = HVD_OPTIONS_INIT;
    options.name = "one";
    int code = hvd_allreduce(&tensor, NULL, &options);
    if (code != HVD_OK) return code;

    training->total += one;
    ++training->step;
    snprintf(training->note, sizeof(training->note), "after step %d", (int)training->step);
    int32_t is_due = 7;
    code = hvd_state_change_due(training->state, &is_due);
    if (code != HVD_OK) return code;
    CHECK(is_due == 0 || is_due == 1);
    code = is_due == 0 ? hvd_state_check(training->state) : HVD_OK;
    if (code == HVD_OK) code = hvd_state_commit(training->state);
    if (code != HVD_OK) return code;
  }
  return HVD_OK;
}

static int run_by_turns(struct training* training) {
  int code = HVD_OK;
  int32_t call = 0;
  while ((code = hvd_elastic_next(training->state, code, &call)) == HVD_OK && call) {
    code = train(training);
  }
  return code;
}

static int run_training(int by_turns) {
  struct training training = {0, 0, 0, 0, "at the beginning", 0, 0};
  CHECK(hvd_sampler_create(kSamples, 1, 7, &training.sampler) == HVD_OK);
  CHECK(hvd_state_create(NULL, &training.state) == HVD_OK);
  CHECK(hvd_state_add_memory(training.state, "step", &training.step, sizeof(training.step)) ==
        HVD_OK);
  const hvd_tensor total = HVD_TENSOR_OF(&training.total, NULL, 0, HVD_FLOAT64, HVD_HOST);
  CHECK(hvd_state_add_tensor(training.state, "total", &total) == HVD_OK);
  CHECK(hvd_state_add_sampler(training.state, "sampler", training.sampler) == HVD_OK);
  hvd_state_handler note = HVD_STATE_HANDLER_INIT;
  note.bytes = note_bytes;
  note.save = save_note;
  note.load = load_note;
  note.data = &training;
  CHECK(hvd_state_add_handler(training.state, "note", &note) == HVD_OK);
  CHECK(hvd_state_on_reset(training.state, count_reset, &training) == HVD_OK);

  if (by_turns) {
    CHECK(run_by_turns(&training) == HVD_OK);
  } else {
    CHECK(hvd_elastic_run(training.state, train, &training, NULL) == HVD_OK);
  }

  uint64_t generation = 0;
  CHECK(hvd_generation(&generation) == HVD_OK);
  printf("steps %d, total %g, note %s, %s\n", (int)training.step, training.total, training.note,
         generation > 1 ? "in a later world" : "in the first world");
  CHECK(hvd_state_release(training.state) == HVD_OK);
  CHECK(hvd_sampler_release(training.sampler) == HVD_OK);
  return 0;
}

/* --- process sets -------------------------------------------------------------------------- */

struct sets {
  int fails;
  int shrinks;
};

static int lose_a_member(void* data) {
  struct sets* const sets = data;
  uint64_t generation = 0;
  CHECK(hvd_generation(&generation) == HVD_OK);
  if (generation == 1) {
    const int32_t first[2] = {0, 1};
    const int32_t last[2] = {1, 2};
    sets->fails = hvd_add_process_set(first, 2);
    sets->shrinks = hvd_add_shrinking_process_set(last, 2);
    CHECK(sets->fails == 1 && sets->shrinks == 2);
    const int code = hvd_barrier(NULL);
    if (code != HVD_OK) return code;
    if (hvd_rank() == 1) raise(SIGKILL);
    return hvd_barrier(NULL);
  }
  CHECK(hvd_process_set_size(sets->fails) == HVD_ERROR_LOST_MEMBER);
  CHECK(strstr(hvd_last_error(), "added as one that shrinks") != NULL);
  CHECK(hvd_process_set_size(sets->shrinks) == 1);
  return HVD_OK;
}

static int check_sets(void) {
  struct sets sets = {0, 0};
  hvd_state state = 0;
  CHECK(hvd_state_create(NULL, &state) == HVD_OK);
  CHECK(hvd_elastic_run(state, lose_a_member, &sets, NULL) == HVD_OK);
  CHECK(hvd_state_release(state) == HVD_OK);
  printf("all sets are right\n");
  return 0;
}

/* --- codes --------------------------------------------------------------------------------- */

static hvd_state own_state;
static int released;

static int return_42(void* data) {
  (void)data;
  return 42;
}

static int fail_with_text(void* data) { return hvd_fail(43, data); }

static int fail_in_hvd(void* data) {
  (void)data;
  return hvd_state_restore(987654321); /* there is no such state */
}

static int handle_and_go_on(void* data) {
  (void)data;
  (void)hvd_state_restore(987654321);
  return HVD_OK;
}

static int run_again(void* data) {
  return hvd_elastic_run(own_state, handle_and_go_on, data, NULL);
}

static int fail_to_commit(void* data) {
  (void)data;
  return hvd_state_commit(own_state);
}

static int refuse_to_measure(void* data, size_t* bytes) {
  (void)data;
  *bytes = 0;
  return 77;
}

static int never_save(void* data, void* into, size_t bytes) {
  (void)data, (void)into, (void)bytes;
  return 78;
}

static int never_load(void* data, const void* from, size_t bytes) {
  (void)data, (void)from, (void)bytes;
  return 79;
}

static void note_release(void* data) {
  (void)data;
  ++released;
}

static int check_codes(void) {
  int64_t step = 0;
  uint64_t generation = 0;
  CHECK(hvd_generation(NULL) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_generation(&generation) == HVD_OK);
  CHECK(hvd_state_create(NULL, NULL) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_state_create(NULL, &own_state) == HVD_OK);
  CHECK(hvd_state_add_memory(own_state, NULL, &step, sizeof(step)) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_state_add_memory(own_state, "step", NULL, 8) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_state_add_memory(own_state, "step", &step, sizeof(step)) == HVD_OK);
  CHECK(hvd_state_add_memory(own_state, "step", &step, sizeof(step)) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_state_add_tensor(own_state, "tensor", NULL) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_state_add_sampler(own_state, "sampler", 12345) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_state_on_reset(own_state, NULL, NULL) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_state_on_notice(own_state, NULL, NULL) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_state_commit(own_state) == HVD_ERROR_INVALID_ARGUMENT); /* nothing runs */
  CHECK(hvd_state_commit(12345) == HVD_ERROR_INVALID_ARGUMENT);
  int32_t is_due = 7;
  CHECK(hvd_state_change_due(own_state, NULL) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_state_change_due(own_state, &is_due) == HVD_ERROR_INVALID_ARGUMENT && is_due == 0);
  CHECK(hvd_state_release(12345) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_state_release(0) == HVD_OK);

  hvd_state_options state_options = HVD_STATE_OPTIONS_INIT;
  hvd_state refused = 5;
  state_options.mode = 9;
  CHECK(hvd_state_create(&state_options, &refused) == HVD_ERROR_INVALID_ARGUMENT && refused == 0);
  state_options.size = 3;
  CHECK(hvd_state_create(&state_options, &refused) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_state_options_init(&state_options, sizeof(state_options)) == HVD_OK);
  CHECK(state_options.mode == HVD_COMMIT_COPY && state_options.size == sizeof(state_options));

  CHECK(hvd_elastic_run(own_state, NULL, NULL, NULL) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_elastic_run(own_state, return_42, NULL, NULL) == 42);
  CHECK(hvd_last_error_code() == 42);
  char text[] = "of the program";
  CHECK(hvd_elastic_run(own_state, fail_with_text, text, NULL) == 43);
  CHECK(hvd_last_error_code() == 43 && strcmp(hvd_last_error(), text) == 0);
  CHECK(hvd_elastic_run(own_state, fail_with_text, NULL, NULL) == 43);
  CHECK(strcmp(hvd_last_error(), "") == 0);
  CHECK(hvd_fail(HVD_OK, text) == HVD_OK);
  CHECK(hvd_elastic_run(own_state, fail_in_hvd, NULL, NULL) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(strstr(hvd_last_error(), "987654321") != NULL);
  CHECK(hvd_elastic_run(own_state, handle_and_go_on, NULL, NULL) == HVD_OK);
  CHECK(hvd_elastic_run(own_state, run_again, NULL, NULL) == HVD_ERROR_INVALID_ARGUMENT);

  /* A handler that lacks a function is released, and one that fails says so with its own code. */
  hvd_state_handler handler = HVD_STATE_HANDLER_INIT;
  handler.release = note_release;
  CHECK(hvd_state_add_handler(own_state, "own", &handler) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(released == 1);
  handler.bytes = refuse_to_measure;
  handler.save = never_save;
  handler.load = never_load;
  CHECK(hvd_state_add_handler(own_state, "own", &handler) == HVD_OK && released == 1);
  CHECK(hvd_elastic_run(own_state, fail_to_commit, NULL, NULL) == 77);
  int32_t call = 1;
  CHECK(hvd_elastic_next(own_state, 5, &call) == HVD_ERROR_INVALID_ARGUMENT && call == 0);
  CHECK(hvd_elastic_next(own_state, HVD_OK, NULL) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_elastic_next(own_state, HVD_OK, &call) == HVD_OK && call == 1);
  CHECK(hvd_elastic_next(own_state, 42, &call) == 42 && call == 0);
  CHECK(hvd_elastic_next(own_state, HVD_OK, &call) == HVD_OK && call == 1);
  CHECK(hvd_elastic_next(own_state, hvd_fail(43, text), &call) == 43 && call == 0);
  CHECK(hvd_last_error_code() == 43 && strcmp(hvd_last_error(), text) == 0);
  CHECK(hvd_state_release(own_state) == HVD_OK && released == 2);

  hvd_sampler sampler = 0;
  int64_t indices[4];
  CHECK(hvd_sampler_create(-1, 0, 0, &sampler) == HVD_ERROR_INVALID_ARGUMENT && sampler == 0);
  CHECK(hvd_sampler_create(10, 0, 0, &sampler) == HVD_OK);
  CHECK(hvd_sampler_next(sampler, 0, indices) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_sampler_next(sampler, 4, NULL) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_sampler_next(sampler, 4, indices) == 4 && indices[3] == 3);
  CHECK(hvd_sampler_next(sampler, 4, indices) == 4);
  CHECK(hvd_sampler_processed(sampler) == 8 && hvd_sampler_remaining(sampler) == 2);
  CHECK(hvd_sampler_next(sampler, 4, indices) == 2);
  CHECK(hvd_sampler_next(sampler, 4, indices) == 0);
  CHECK(hvd_sampler_set_epoch(sampler, 1) == HVD_OK && hvd_sampler_epoch(sampler) == 1);
  CHECK(hvd_sampler_set_epoch(sampler, -7) == HVD_ERROR_INVALID_ARGUMENT);
  CHECK(hvd_sampler_epoch(sampler) == 1);
  CHECK(hvd_sampler_remaining(sampler) == 10);
  CHECK(hvd_sampler_release(sampler) == HVD_OK);
  CHECK(hvd_sampler_epoch(sampler) == HVD_ERROR_INVALID_ARGUMENT);
  printf("all codes are right\n");
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  hvd_init_options options = HVD_INIT_OPTIONS_INIT;
  options.dynamic_process_sets = 1;
  CHECK(hvd_init(&options) == HVD_OK);
  int result = 2;
  if (strcmp(argv[1], "train") == 0) result = run_training(0);
  if (strcmp(argv[1], "turns") == 0) result = run_training(1);
  if (strcmp(argv[1], "sets") == 0) result = check_sets();
  if (strcmp(argv[1], "codes") == 0) result = check_codes();
  CHECK(hvd_shutdown() == HVD_OK);
  return result;
}
