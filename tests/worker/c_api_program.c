/* Every call of the C API, by as many ranks as there are. Says "ok RANK." at its end; what is wrong
 * ends it with 1. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hvd/c_api.h>

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      fprintf(stderr, "line %d: not so: %s (last error %d: %s)\n", __LINE__, #condition, \
              hvd_last_error_code(), hvd_last_error());                                  \
      exit(1);                                                                           \
    }                                                                                    \
  } while (0)

/* A call that must be refused, with this code and these words. */
#define REFUSED(call, code, words)                    \
  do {                                                \
    CHECK((call) == (code));                          \
    CHECK(hvd_last_error_code() == (code));           \
    CHECK(strstr(hvd_last_error(), (words)) != NULL); \
  } while (0)
#define INVALID(call, words) REFUSED(call, HVD_ERROR_INVALID_ARGUMENT, words)

static int rank, size;
static const int64_t two[1] = {2};
static const int64_t matrix[2] = {2, 3};

static hvd_tensor vector(float* data, const int64_t* length) {
  hvd_tensor tensor = HVD_TENSOR_OF(data, length, 1, HVD_FLOAT32, HVD_HOST);
  return tensor;
}

static float sum_of_ranks(void) { return (float)(size * (size + 1)) / 2; } /* rank r gives r + 1 */

/* --- something to wait for --- */

typedef struct signal_of {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int set, released, code;
  char text[200];
} signal_of;

#define SIGNAL_INIT \
  { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, "" }

static void set_signal(signal_of* s) {
  pthread_mutex_lock(&s->mutex);
  s->set = 1;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mutex);
}

static void wait_signal(void* data) {
  signal_of* s = data;
  pthread_mutex_lock(&s->mutex);
  while (!s->set) pthread_cond_wait(&s->changed, &s->mutex);
  pthread_mutex_unlock(&s->mutex);
}

static int is_set(void* data) {
  signal_of* s = data;
  pthread_mutex_lock(&s->mutex);
  const int set = s->set;
  pthread_mutex_unlock(&s->mutex);
  return set;
}

static void release_signal(void* data) {
  signal_of* s = data;
  pthread_mutex_lock(&s->mutex);
  ++s->released;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mutex);
}

static void wait_released(signal_of* s) {
  pthread_mutex_lock(&s->mutex);
  while (s->released == 0) pthread_cond_wait(&s->changed, &s->mutex);
  pthread_mutex_unlock(&s->mutex);
}

static void note_done(void* data, int code) {
  signal_of* s = data;
  pthread_mutex_lock(&s->mutex);
  s->code = code;
  snprintf(s->text, sizeof(s->text), "%s", code == HVD_OK ? "" : hvd_last_error());
  pthread_mutex_unlock(&s->mutex);
  set_signal(s);
}

/* --- before init --- */

static void before_init(void) {
  float data[2] = {0, 0};
  hvd_tensor tensor = vector(data, two);
  hvd_handle handle = 7;
  CHECK(hvd_last_error_code() == HVD_OK && hvd_last_error()[0] == 0);
  CHECK(hvd_is_initialized() == 0);
  const int none = HVD_ERROR_NOT_INITIALIZED;
  REFUSED(hvd_rank(), none, "hvd::init()");
  REFUSED(hvd_size(), none, "init");
  REFUSED(hvd_local_rank(), none, "init");
  REFUSED(hvd_local_size(), none, "init");
  REFUSED(hvd_cross_rank(), none, "init");
  REFUSED(hvd_cross_size(), none, "init");
  REFUSED(hvd_is_homogeneous(), none, "init");
  REFUSED(hvd_mpi_threads_supported(), none, "init");
  REFUSED(hvd_start_timeline("/tmp/x", 0), none, "init");
  REFUSED(hvd_stop_timeline(), none, "init");
  REFUSED(hvd_allreduce(&tensor, NULL, NULL), none, "init");
  REFUSED(hvd_allreduce_async(&tensor, NULL, NULL, &handle), none, "init");
  CHECK(handle == 0);
  REFUSED(hvd_allgather(&tensor, NULL, &handle), none, "init");
  REFUSED(hvd_grouped_allreduce(&tensor, NULL, 1, NULL), none, "init");
  REFUSED(hvd_barrier(NULL), none, "init");
  REFUSED(hvd_join(), none, "init");
  REFUSED(hvd_broadcast_object("x", 1, NULL, &handle), none, "init");
  REFUSED(hvd_allgather_object("x", 1, NULL, &handle), none, "init");
  REFUSED(hvd_add_process_set(NULL, 0), none, "init");
  REFUSED(hvd_add_shrinking_process_set(NULL, 0), none, "init");
  REFUSED(hvd_remove_process_set(1), none, "init");
  REFUSED(hvd_process_set_size(0), none, "init");
  REFUSED(hvd_process_set_rank(0), none, "init");
  REFUSED(hvd_process_set_included(0), none, "init");
  REFUSED(hvd_process_set_ranks(0, NULL, 0), none, "init");
  REFUSED(hvd_process_sets(NULL, 0), none, "init");
  CHECK(hvd_shutdown() == HVD_OK);

  hvd_init_options options = HVD_INIT_OPTIONS_INIT;
  options.size = 3;
  INVALID(hvd_init(&options), "options.size is 3");
  options.size = sizeof(options);
  options.process_set_count = 1;
  INVALID(hvd_init(&options), "options.process_sets is null");
  const int32_t* none_of[1] = {NULL};
  options.process_sets = none_of;
  INVALID(hvd_init(&options), "options.process_set_sizes is null");
  const size_t one[1] = {1};
  options.process_set_sizes = one;
  INVALID(hvd_init(&options), "one of options.process_sets is null");
  const int32_t far[1] = {1000};
  none_of[0] = far;
  REFUSED(hvd_init(&options), HVD_ERROR_INIT, "1000");
  INVALID(hvd_init_options_init(NULL, sizeof(options)), "options is null");
  INVALID(hvd_init_options_init(&options, 1), "1 bytes");
  CHECK(hvd_init_options_init(&options, sizeof(options)) == HVD_OK);
  CHECK(options.size == sizeof(options) && options.process_set_count == 0);
  for (int code = HVD_ERROR_STATE_DIVERGED; code <= 0; ++code) {
    CHECK(strcmp(hvd_code_text(code), "unknown code") != 0);
  }
  CHECK(strcmp(hvd_code_text(1), "unknown code") == 0);
}

/* --- collectives --- */

static void allreduces(void) {
  float data[2] = {(float)(rank + 1), 1}, output[2] = {0, 0};
  hvd_tensor in = vector(data, two), out = vector(output, two);
  hvd_options options = HVD_OPTIONS_INIT;
  CHECK(hvd_allreduce(&in, &out, NULL) == HVD_OK); /* average */
  CHECK(output[0] == sum_of_ranks() / (float)size && output[1] == 1 &&
        data[0] == (float)(rank + 1));
  options.name = "sum";
  options.op = HVD_SUM;
  options.prescale = 2;
  options.postscale = 0.25;
  options.compression = HVD_COMPRESSION_FLOAT16;
  CHECK(hvd_allreduce(&in, NULL, &options) == HVD_OK);
  CHECK(data[0] == sum_of_ranks() / 2 && data[1] == (float)size / 2);

  /* Every type, the smallest and the largest. */
  for (int type = HVD_BOOL; type <= HVD_FLOAT8_E5M2; ++type) {
    unsigned char elements[16];
    memset(elements, 0, sizeof(elements));
    hvd_tensor tensor = HVD_TENSOR_OF(elements, two, 1, type, HVD_HOST);
    hvd_options largest = HVD_OPTIONS_INIT;
    largest.op = HVD_MAX;
    CHECK(hvd_allreduce(&tensor, NULL, &largest) == HVD_OK);
    CHECK(elements[0] == 0 && elements[15] == 0);
  }
  /* A scalar, and nothing at all. */
  float scalar = (float)rank;
  hvd_tensor one = HVD_TENSOR_OF(&scalar, NULL, 0, HVD_FLOAT32, HVD_HOST);
  hvd_options least = HVD_OPTIONS_INIT;
  least.op = HVD_MIN;
  CHECK(hvd_allreduce(&one, NULL, &least) == HVD_OK && scalar == 0);
  const int64_t zero[1] = {0};
  hvd_tensor empty = vector(NULL, zero);
  CHECK(hvd_allreduce(&empty, NULL, NULL) == HVD_OK);

  hvd_handle handle = 0;
  data[0] = 1;
  options = (hvd_options)HVD_OPTIONS_INIT;
  options.op = HVD_SUM;
  options.name = "async";
  CHECK(hvd_allreduce_async(&in, NULL, &options, &handle) == HVD_OK && handle != 0);
  CHECK(hvd_wait_for(handle, INT64_MAX) == HVD_OK && hvd_wait_for(handle, -1) == HVD_OK);
  CHECK(hvd_wait(handle) == HVD_OK && hvd_wait(handle) == HVD_OK && hvd_ready(handle) == 1);
  CHECK(data[0] == (float)size);
  hvd_tensor result = HVD_TENSOR_INIT;
  CHECK(hvd_result_count(handle) == 1 && hvd_result(handle, 0, &result) == HVD_OK);
  CHECK(result.data == data && result.dimensions == 1 && result.shape[0] == 2 &&
        result.type == HVD_FLOAT32 && result.device == HVD_HOST);
  INVALID(hvd_result(handle, 1, &result), "no result 1; there are 1");
  INVALID(hvd_result(handle, 0, NULL), "tensor is null");
  const int64_t* splits;
  size_t count;
  INVALID(hvd_received_splits(handle, &splits, &count), "no alltoall");
  INVALID(hvd_received_splits(handle, NULL, &count), "splits is null");
  INVALID(hvd_last_joined(handle), "no join");
  CHECK(hvd_release(handle) == HVD_OK);
  INVALID(hvd_release(handle), "does not exist, or is released");
  INVALID(hvd_wait(handle), "does not exist");
  INVALID(hvd_wait_for(handle, 0), "does not exist");
  INVALID(hvd_ready(handle), "does not exist");
  INVALID(hvd_result_count(handle), "does not exist");
  CHECK(hvd_release(0) == HVD_OK);

  float more[3] = {1, 2, 3};
  const int64_t three[1] = {3};
  hvd_tensor group[2] = {vector(data, two), vector(more, three)};
  data[0] = data[1] = 1;
  options.name = "group";
  CHECK(hvd_grouped_allreduce(group, NULL, 2, &options) == HVD_OK);
  CHECK(data[1] == (float)size && more[2] == 3 * (float)size);
  float other[2], others[3];
  hvd_tensor outputs[2] = {vector(other, two), vector(others, three)};
  CHECK(hvd_grouped_allreduce_async(group, outputs, 2, &options, &handle) == HVD_OK);
  CHECK(hvd_wait(handle) == HVD_OK && hvd_result_count(handle) == 2);
  CHECK(others[2] == 3 * (float)size * (float)size);
  CHECK(hvd_release(handle) == HVD_OK);
  CHECK(hvd_grouped_allreduce(NULL, NULL, 0, NULL) == HVD_OK);
}

static void moves(void) {
  float data[6];
  hvd_handle handle;
  hvd_tensor result = HVD_TENSOR_INIT;
  hvd_options options = HVD_OPTIONS_INIT;

  options.root = size - 1;
  data[0] = data[1] = (float)rank;
  hvd_tensor pair = vector(data, two);
  CHECK(hvd_broadcast(&pair, NULL, &options) == HVD_OK && data[1] == (float)(size - 1));
  float copy[2] = {-1, -1};
  hvd_tensor to = vector(copy, two);
  CHECK(hvd_broadcast_async(&pair, &to, &options, &handle) == HVD_OK);
  CHECK(hvd_wait(handle) == HVD_OK && copy[0] == (float)(size - 1) &&
        hvd_release(handle) == HVD_OK);
  CHECK(hvd_barrier(NULL) == HVD_OK);
  CHECK(hvd_barrier_async(NULL, &handle) == HVD_OK && hvd_wait(handle) == HVD_OK);
  CHECK(hvd_result_count(handle) == 0 && hvd_release(handle) == HVD_OK);

  if (size > 1) {
    const int32_t next = (rank + 1) % size;
    const int32_t previous = (rank + size - 1) % size;
    hvd_handle sent;
    data[0] = data[1] = (float)rank;
    CHECK(hvd_send_async(&pair, next, NULL, &sent) == HVD_OK);
    CHECK(hvd_recv(&to, previous, NULL) == HVD_OK && copy[1] == (float)previous);
    CHECK(hvd_wait(sent) == HVD_OK && hvd_release(sent) == HVD_OK);
    CHECK(hvd_recv_async(&to, next, NULL, &handle) == HVD_OK);
    CHECK(hvd_send(&pair, previous, NULL) == HVD_OK);
    CHECK(hvd_wait(handle) == HVD_OK && copy[0] == (float)next && hvd_release(handle) == HVD_OK);
  }

  /* Rank r gives r rows. */
  const int64_t rows[1] = {rank};
  for (int i = 0; i < 6; ++i) data[i] = (float)rank;
  hvd_tensor own = vector(data, rows);
  CHECK(hvd_allgather(&own, NULL, &handle) == HVD_OK);
  CHECK(hvd_result(handle, 0, &result) == HVD_OK && result.shape[0] == size * (size - 1) / 2);
  if (size > 1) CHECK(((float*)result.data)[result.shape[0] - 1] == (float)(size - 1));
  CHECK(hvd_release(handle) == HVD_OK);
  hvd_tensor both[2] = {vector(data, two), HVD_TENSOR_OF(data, matrix, 2, HVD_FLOAT32, HVD_HOST)};
  CHECK(hvd_grouped_allgather(both, 2, NULL, &handle) == HVD_OK && hvd_result_count(handle) == 2);
  CHECK(hvd_result(handle, 1, &result) == HVD_OK && result.dimensions == 2 &&
        result.shape[0] == 2 * size && result.shape[1] == 3);
  CHECK(hvd_release(handle) == HVD_OK);

  /* One row to each rank, and none that is left. */
  int64_t splits[4] = {1, 1, 1, 1};
  const int64_t rows_of_all[1] = {4};
  for (int i = 0; i < 4; ++i) data[i] = (float)(10 * rank + i);
  hvd_tensor all = vector(data, rows_of_all);
  options = (hvd_options)HVD_OPTIONS_INIT;
  options.splits = splits;
  options.split_count = (size_t)size;
  CHECK(hvd_alltoall(&all, &options, &handle) == HVD_OK);
  CHECK(hvd_result(handle, 0, &result) == HVD_OK && result.shape[0] == size);
  for (int r = 0; r < size; ++r) CHECK(((float*)result.data)[r] == (float)(10 * r + rank));
  const int64_t* received;
  size_t count;
  CHECK(hvd_received_splits(handle, &received, &count) == HVD_OK && count == (size_t)size);
  CHECK(received[size - 1] == 1 && hvd_release(handle) == HVD_OK);

  /* size + 1 rows: the first rank gets two. */
  const int64_t uneven[1] = {size + 1};
  for (int i = 0; i < 6; ++i) data[i] = (float)i;
  hvd_tensor scattered = vector(data, uneven);
  options = (hvd_options)HVD_OPTIONS_INIT;
  options.op = HVD_SUM;
  CHECK(hvd_reducescatter(&scattered, NULL, &options, &handle) == HVD_OK);
  CHECK(hvd_result(handle, 0, &result) == HVD_OK && result.shape[0] == (rank == 0 ? 2 : 1));
  CHECK(((float*)result.data)[0] == (float)(size * (rank == 0 ? 0 : rank + 1)));
  CHECK(hvd_release(handle) == HVD_OK);
  float mine[2];
  const int64_t own_rows[1] = {rank == 0 ? 2 : 1};
  to = vector(mine, own_rows);
  CHECK(hvd_reducescatter_async(&scattered, &to, &options, &handle) == HVD_OK);
  CHECK(hvd_wait(handle) == HVD_OK && hvd_release(handle) == HVD_OK);
  CHECK(mine[0] == (float)(size * (rank == 0 ? 0 : rank + 1)));
  CHECK(hvd_grouped_reducescatter(&scattered, 1, &options, &handle) == HVD_OK);
  CHECK(hvd_result_count(handle) == 1 && hvd_release(handle) == HVD_OK);

  CHECK(hvd_join() >= 0);
  CHECK(hvd_join_async(&handle) == HVD_OK && hvd_wait(handle) == HVD_OK);
  CHECK(hvd_last_joined(handle) >= 0 && hvd_last_joined(handle) < size);
  CHECK(hvd_result_count(handle) == 0 && hvd_release(handle) == HVD_OK);
}

static void objects(void) {
  hvd_handle handle;
  hvd_tensor result = HVD_TENSOR_INIT;
  hvd_options options = HVD_OPTIONS_INIT;
  options.root = size - 1;
  CHECK(hvd_broadcast_object(rank == size - 1 ? "word" : "", rank == size - 1 ? 4 : 0, &options,
                             &handle) == HVD_OK);
  CHECK(hvd_result(handle, 0, &result) == HVD_OK && result.shape[0] == 4 &&
        result.type == HVD_UINT8 && memcmp(result.data, "word", 4) == 0);
  CHECK(hvd_release(handle) == HVD_OK);
  CHECK(hvd_allgather_object("aaaa", (size_t)rank, NULL, &handle) == HVD_OK);
  CHECK(hvd_result_count(handle) == size);
  CHECK(hvd_result(handle, (size_t)(size - 1), &result) == HVD_OK && result.shape[0] == size - 1);
  CHECK(hvd_release(handle) == HVD_OK);

  float first[2] = {(float)rank, 0}, second[2] = {0, (float)rank};
  hvd_tensor tensors[2] = {vector(first, two), vector(second, two)};
  const char* names[2] = {"first", "second"};
  CHECK(hvd_broadcast_parameters(names, tensors, 2, &options) == HVD_OK);
  CHECK(first[0] == (float)(size - 1) && second[1] == (float)(size - 1));
  CHECK(hvd_broadcast_parameters(NULL, NULL, 0, NULL) == HVD_OK);

  const int64_t one[1] = {1};
  const int64_t row[2] = {1, 2};
  int64_t index = rank;
  float values[2] = {(float)size, 2 * (float)size};
  hvd_tensor indices = HVD_TENSOR_OF(&index, one, 1, HVD_INT64, HVD_HOST);
  hvd_tensor rows = HVD_TENSOR_OF(values, row, 2, HVD_FLOAT32, HVD_HOST);
  CHECK(hvd_sparse_allreduce(&indices, &rows, NULL, &handle) == HVD_OK);
  CHECK(hvd_result_count(handle) == 2 && hvd_result(handle, 0, &result) == HVD_OK);
  CHECK(((int64_t*)result.data)[size - 1] == size - 1);
  CHECK(hvd_result(handle, 1, &result) == HVD_OK && ((float*)result.data)[1] == 2);
  CHECK(hvd_release(handle) == HVD_OK);
  CHECK(hvd_sparse_allreduce_async(&indices, &rows, NULL, &handle) == HVD_OK);
  CHECK(hvd_wait(handle) == HVD_OK && hvd_release(handle) == HVD_OK);

  INVALID(hvd_broadcast_object(NULL, 1, NULL, &handle), "bytes is null");
  INVALID(hvd_broadcast_object("x", 1, NULL, NULL), "handle is null");
  INVALID(hvd_allgather_object(NULL, 1, NULL, &handle), "bytes is null");
  INVALID(hvd_allgather_object("x", 1, NULL, NULL), "handle is null");
  INVALID(hvd_broadcast_parameters(NULL, tensors, 2, NULL), "names is null");
  INVALID(hvd_broadcast_parameters(names, NULL, 2, NULL), "tensors is null");
  names[1] = NULL;
  INVALID(hvd_broadcast_parameters(names, tensors, 2, NULL), "a name is null");
  names[1] = "first";
  INVALID(hvd_broadcast_parameters(names, tensors, 2, NULL), "first");
  INVALID(hvd_sparse_allreduce(NULL, &rows, NULL, &handle), "the indices is null");
  INVALID(hvd_sparse_allreduce(&indices, NULL, NULL, &handle), "the values is null");
  INVALID(hvd_sparse_allreduce(&rows, &rows, NULL, &handle), "int32 or int64");
  INVALID(hvd_sparse_allreduce_async(&indices, &rows, NULL, NULL), "handle is null");
}

/* --- allocators, events, callbacks --- */

typedef struct room {
  void* data;
  size_t index;
  int64_t rows;
  int32_t type;
} room;

static void* make_room(void* data, size_t index, const int64_t* shape, int32_t dimensions,
                       int32_t type) {
  room* made = data;
  if (dimensions != 1 || shape[0] > 1000) return NULL;
  made->index = index;
  made->rows = shape[0];
  made->type = type;
  return made->data = malloc((size_t)shape[0] * sizeof(float) + 1);
}

static void* no_room(void* data, size_t index, const int64_t* shape, int32_t dimensions,
                     int32_t type) {
  (void)data, (void)index, (void)shape, (void)dimensions, (void)type;
  return NULL;
}

static void* set_later(void* data) {
  set_signal(data);
  return NULL;
}

static void seams(void) {
  float data[2] = {1, 1};
  hvd_tensor tensor = vector(data, two), result = HVD_TENSOR_INIT;
  hvd_options options = HVD_OPTIONS_INIT;
  hvd_handle handle;
  room made = {NULL, 9, 0, 0};
  options.name = "made";
  options.allocate = make_room;
  options.allocate_data = &made;
  CHECK(hvd_allgather(&tensor, &options, &handle) == HVD_OK);
  CHECK(hvd_result(handle, 0, &result) == HVD_OK && result.data == made.data);
  CHECK(made.rows == 2 * size && made.index == 0 && made.type == HVD_FLOAT32);
  CHECK(hvd_release(handle) == HVD_OK);
  CHECK(((float*)made.data)[2 * size - 1] == 1); /* it is the caller's */
  free(made.data);
  options.allocate = no_room;
  CHECK(hvd_allgather(&tensor, &options, &handle) != HVD_OK && handle == 0);
  CHECK(strstr(hvd_last_error(), "made") != NULL);
  CHECK(hvd_barrier(NULL) == HVD_OK); /* the world goes on */

  /* Not read before it is ready. */
  signal_of later = SIGNAL_INIT, done = SIGNAL_INIT;
  const hvd_ready_event event = HVD_READY_EVENT_OF(is_set, wait_signal, release_signal, &later);
  options = (hvd_options)HVD_OPTIONS_INIT;
  options.name = "later";
  options.op = HVD_SUM;
  options.ready = &event;
  options.ready_count = 1;
  CHECK(hvd_allreduce_async(&tensor, NULL, &options, &handle) == HVD_OK);
  CHECK(hvd_on_done(handle, note_done, &done) == HVD_OK);
  INVALID(hvd_on_done(handle, NULL, NULL), "done is null");
  CHECK(hvd_ready(handle) == 0);
  REFUSED(hvd_wait_for(handle, 10), HVD_ERROR_NOT_READY, "not done after 10 ms");
  REFUSED(hvd_result(handle, 0, &result), HVD_ERROR_NOT_READY, "hvd_wait()");
  REFUSED(hvd_result_count(handle), HVD_ERROR_NOT_READY, "not done");
  REFUSED(hvd_last_joined(handle), HVD_ERROR_NOT_READY, "not done");
  CHECK(hvd_release(handle) == HVD_OK); /* the work goes on */
  data[0] = (float)(rank + 1);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, set_later, &later) == 0);
  wait_signal(&done);
  CHECK(done.code == HVD_OK && data[0] == sum_of_ranks());
  CHECK(pthread_join(thread, NULL) == 0);
  wait_released(&later);
  CHECK(later.released == 1);

  /* One for each of a group; released too if the call fails. */
  signal_of now[2] = {SIGNAL_INIT, SIGNAL_INIT};
  now[0].set = now[1].set = 1;
  hvd_ready_event events[2] = {
      HVD_READY_EVENT_OF(is_set, wait_signal, release_signal, &now[0]),
      HVD_READY_EVENT_OF(is_set, wait_signal, release_signal, &now[1]),
  };
  float more[2] = {1, 1};
  hvd_tensor group[2] = {vector(data, two), vector(more, two)};
  options.name = "events";
  options.ready = events;
  options.ready_count = 2;
  CHECK(hvd_grouped_allreduce(group, NULL, 2, &options) == HVD_OK);
  wait_released(&now[0]);
  wait_released(&now[1]);
  INVALID(hvd_grouped_allreduce_async(group, NULL, 2, &options, NULL), "handle is null");
  CHECK(now[0].released == 2 && now[1].released == 2);
  events[1].size += 8;
  INVALID(
      hvd_grouped_allreduce(group, NULL, 2, &options),
      "hvd_grouped_allreduce(): a ready event 1 of an array has size 48, but the first one has 40");
  events[0].size = 0;
  INVALID(hvd_grouped_allreduce(group, NULL, 2, &options), "a ready event.size is 0");
  events[0].size = events[1].size = sizeof(hvd_ready_event);
  CHECK(now[0].released == 2 && now[1].released == 2); /* whose they are was not known */
  INVALID(hvd_allreduce(&tensor, NULL, &options), "ready_count is 2 for 1 tensors");
  CHECK(now[0].released == 2);
  options.ready_count = 1;
  options.ready = NULL;
  INVALID(hvd_allreduce(&tensor, NULL, &options), "options.ready is null");
  const hvd_ready_event deaf = HVD_READY_EVENT_OF(NULL, wait_signal, release_signal, &now[0]);
  options.ready = &deaf;
  INVALID(hvd_allreduce(&tensor, NULL, &options), "`ready` and `wait`");
  CHECK(now[0].released == 3);
  options.ready = &events[0];
  INVALID(hvd_allgather_object("x", 1, &options, &handle), "takes no ready events");
  options.ready_count = 0;
  options.allocate = no_room;
  INVALID(hvd_sparse_allreduce(&tensor, &tensor, &options, &handle), "takes no allocator");

  /* Errors that only the ranks together can find reach callbacks with their text. */
  if (size > 1) {
    const int64_t length[1] = {rank == 0 ? 1 : 2};
    hvd_tensor differs = vector(data, length);
    signal_of failed = SIGNAL_INIT;
    hvd_options named = HVD_OPTIONS_INIT;
    named.name = "differs";
    CHECK(hvd_allreduce_async(&differs, NULL, &named, &handle) == HVD_OK);
    CHECK(hvd_on_done(handle, note_done, &failed) == HVD_OK);
    wait_signal(&failed);
    CHECK(failed.code == HVD_ERROR_INVALID_ARGUMENT && strstr(failed.text, "differs") != NULL);
    INVALID(hvd_wait(handle), "differs");
    INVALID(hvd_result(handle, 0, &result), "differs");
    INVALID(hvd_result_count(handle), "differs");
    CHECK(hvd_release(handle) == HVD_OK);
    INVALID(hvd_allreduce(&differs, NULL, &named), "differs");
    CHECK(hvd_barrier(NULL) == HVD_OK);
  }
}

/* --- process sets --- */

static void sets(void) {
  int32_t numbers[8], ranks[8];
  CHECK(hvd_process_sets(numbers, 8) == 1 && numbers[0] == 0);
  CHECK(hvd_process_sets(NULL, 0) == 1);
  INVALID(hvd_process_sets(NULL, 1), "null");
  CHECK(hvd_process_set_size(0) == size && hvd_process_set_rank(0) == rank);
  CHECK(hvd_process_set_included(0) == 1);
  CHECK(hvd_process_set_ranks(0, ranks, 8) == size && ranks[size - 1] == size - 1);
  INVALID(hvd_process_set_ranks(0, NULL, 1), "null");
  REFUSED(hvd_process_set_size(77), HVD_ERROR_UNKNOWN_PROCESS_SET, "77");
  REFUSED(hvd_remove_process_set(77), HVD_ERROR_UNKNOWN_PROCESS_SET, "77");
  float data[2] = {1, 1};
  hvd_tensor tensor = vector(data, two);
  hvd_options options = HVD_OPTIONS_INIT;
  options.process_set = 77;
  REFUSED(hvd_allreduce(&tensor, NULL, &options), HVD_ERROR_UNKNOWN_PROCESS_SET, "77");
  options.process_set = -1;
  CHECK(hvd_allreduce(&tensor, NULL, &options) < 0);
  INVALID(hvd_add_process_set(NULL, 2), "hvd_add_process_set(): ranks is null");
  INVALID(hvd_add_shrinking_process_set(NULL, 2), "hvd_add_shrinking_process_set(): ranks is null");
  INVALID(hvd_add_process_set_by_members(NULL, 2),
          "hvd_add_process_set_by_members(): ranks is null");
  INVALID(hvd_add_process_set(ranks, 0), "at least one rank");
  const int32_t far[1] = {1000};
  INVALID(hvd_add_process_set(far, 1), "1000");
  REFUSED(hvd_add_process_set(ranks, (size_t)size), HVD_ERROR_DUPLICATE_PROCESS_SET, "0");
  if (size == 1) return;
  const int32_t last[1] = {size - 1};
  const int set = hvd_add_process_set(last, 1);
  CHECK(set >= 1);
  CHECK(hvd_process_set_included(set) == (rank == size - 1) && hvd_process_set_size(set) == 1);
  options.process_set = set;
  options.op = HVD_SUM;
  if (rank == size - 1) {
    CHECK(hvd_process_set_rank(set) == 0);
    CHECK(hvd_allreduce(&tensor, NULL, &options) == HVD_OK && data[0] == 1);
  } else {
    REFUSED(hvd_process_set_rank(set), HVD_ERROR_NOT_A_MEMBER, "not in it");
    REFUSED(hvd_allreduce(&tensor, NULL, &options), HVD_ERROR_NOT_A_MEMBER, "");
  }
  CHECK(hvd_barrier(NULL) == HVD_OK);
  CHECK(hvd_remove_process_set(set) == HVD_OK);
  REFUSED(hvd_process_set_size(set), HVD_ERROR_UNKNOWN_PROCESS_SET, "");
  if (rank != size - 1) {
    REFUSED(hvd_add_process_set_by_members(last, 1), HVD_ERROR_NOT_A_MEMBER, "who alone call it");
    return;
  }
  const int own = hvd_add_process_set_by_members(last, 1);
  CHECK(own > set && hvd_process_set_included(own) == 1);
  options.process_set = own;
  CHECK(hvd_allreduce(&tensor, NULL, &options) == HVD_OK);
  CHECK(hvd_add_process_set_by_members(last, 1) == own + 1); /* of the same ranks */
  CHECK(hvd_remove_process_set(own) == HVD_OK);
  REFUSED(hvd_process_set_size(own), HVD_ERROR_UNKNOWN_PROCESS_SET, "");
}

/* --- arguments that can never be right --- */

/* Structs of a program that was compiled with a later version of hvd. */
typedef struct later_tensor {
  hvd_tensor tensor;
  int64_t more;
} later_tensor;

static void tensors_of_other_versions(void) {
  float a[2] = {1, 1}, b[2] = {1, 1};
  later_tensor later[2] = {{vector(a, two), 0}, {vector(b, two), 0}};
  later[0].tensor.size = later[1].tensor.size = sizeof(later_tensor);
  const hvd_tensor* tensors = &later[0].tensor;
  hvd_handle handle;
  CHECK(hvd_grouped_allreduce(tensors, NULL, 2, NULL) == HVD_OK);
  CHECK(a[1] == 1 && b[1] == 1); /* the average */
  CHECK(hvd_grouped_allgather(tensors, 2, NULL, &handle) == HVD_OK);
  later_tensor result = {HVD_TENSOR_INIT, 7};
  result.tensor.size = sizeof(result);
  CHECK(hvd_result(handle, 1, &result.tensor) == HVD_OK);
  CHECK(result.tensor.size == sizeof(result) && result.tensor.shape[0] == 2 * size);
  CHECK(result.more == 7);

  hvd_tensor none = HVD_TENSOR_INIT;
  none.size = 0;
  INVALID(hvd_result(handle, 0, &none), "hvd_result(): tensor.size is 0; it is sizeof");
  CHECK(hvd_release(handle) == HVD_OK);

  later[1].more = 1;
  INVALID(hvd_grouped_allreduce(tensors, NULL, 2, NULL), "that only a newer version of hvd knows");
  later[1].more = 0;
  later[1].tensor.size = sizeof(hvd_tensor);
  INVALID(hvd_grouped_allreduce(tensors, NULL, 2, NULL),
          "the input 1 of an array has size 40, but the first");

  CHECK(hvd_tensor_init(&none, sizeof(none)) == HVD_OK && none.size == sizeof(none));
  CHECK(none.data == NULL && none.type == HVD_FLOAT32 && none.device == HVD_HOST);
  INVALID(hvd_tensor_init(&none, 8), "there is no version with options of 8 bytes");
  INVALID(hvd_tensor_init(NULL, sizeof(none)), "is null");
  hvd_ready_event event;
  CHECK(hvd_ready_event_init(&event, sizeof(event)) == HVD_OK && event.size == sizeof(event));
}

static void wrong_tensors(void) {
  float data[2] = {1, 1};
  hvd_handle handle;
  const hvd_tensor good = vector(data, two);
  struct {
    hvd_tensor tensor;
    const char* words;
  } wrong[] = {
      {{8, data, two, 1, HVD_FLOAT32, HVD_HOST, 0}, "size is 8; it is sizeof of the struct"},
      {{sizeof(hvd_tensor), data, two, 1, HVD_FLOAT32, HVD_HOST, 1}, "`reserved` is not 0"},
      {HVD_TENSOR_OF(data, two, -1, HVD_FLOAT32, HVD_HOST), "-1 dimensions"},
      {HVD_TENSOR_OF(data, two, 257, HVD_FLOAT32, HVD_HOST), "257 dimensions"},
      {HVD_TENSOR_OF(data, NULL, 1, HVD_FLOAT32, HVD_HOST), "its shape is null"},
      {HVD_TENSOR_OF(data, two, 1, -1, HVD_HOST), "the type -1"},
      {HVD_TENSOR_OF(data, two, 1, 13, HVD_HOST), "the type 13"},
      {HVD_TENSOR_OF(data, two, 1, HVD_FLOAT32, -1), "the device -1"},
      {HVD_TENSOR_OF(NULL, two, 1, HVD_FLOAT32, HVD_HOST), "no memory"},
  };
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
    const hvd_tensor* bad = &wrong[i].tensor;
    const char* words = wrong[i].words;
    INVALID(hvd_allreduce(bad, NULL, NULL), words);
    INVALID(hvd_allreduce(&good, bad, NULL), i == 8 ? "" : words);
    INVALID(hvd_allreduce_async(bad, NULL, NULL, &handle), words);
    INVALID(hvd_grouped_allreduce(bad, NULL, 1, NULL), words);
    INVALID(hvd_grouped_allreduce_async(bad, NULL, 1, NULL, &handle), words);
    INVALID(hvd_allgather(bad, NULL, &handle), words);
    INVALID(hvd_allgather_async(bad, NULL, &handle), words);
    INVALID(hvd_grouped_allgather(bad, 1, NULL, &handle), words);
    INVALID(hvd_grouped_allgather_async(bad, 1, NULL, &handle), words);
    INVALID(hvd_alltoall(bad, NULL, &handle), words);
    INVALID(hvd_alltoall_async(bad, NULL, &handle), words);
    INVALID(hvd_reducescatter(bad, NULL, NULL, &handle), words);
    INVALID(hvd_reducescatter_async(bad, NULL, NULL, &handle), words);
    INVALID(hvd_grouped_reducescatter(bad, 1, NULL, &handle), words);
    INVALID(hvd_grouped_reducescatter_async(bad, 1, NULL, &handle), words);
    if (rank == 0) INVALID(hvd_broadcast(bad, NULL, NULL), words);
    if (rank == 0) INVALID(hvd_broadcast_async(bad, NULL, NULL, &handle), words);
    CHECK(handle == 0);
  }
  INVALID(hvd_allreduce(NULL, NULL, NULL), "the input is null");
  INVALID(hvd_grouped_allreduce(NULL, NULL, 1, NULL), "the input is null");
  INVALID(hvd_broadcast(NULL, NULL, NULL), "the input is null");
  INVALID(hvd_allgather(NULL, NULL, &handle), "the input is null");
  INVALID(hvd_alltoall(NULL, NULL, &handle), "the input is null");
  INVALID(hvd_reducescatter(NULL, NULL, NULL, &handle), "the input is null");
  INVALID(hvd_allreduce_async(&good, NULL, NULL, NULL), "handle is null");
  INVALID(hvd_broadcast_async(&good, NULL, NULL, NULL), "handle is null");
  INVALID(hvd_barrier_async(NULL, NULL), "handle is null");
  INVALID(hvd_allgather(&good, NULL, NULL), "handle is null");
  INVALID(hvd_allgather_async(&good, NULL, NULL), "handle is null");
  INVALID(hvd_grouped_allgather(&good, 1, NULL, NULL), "handle is null");
  INVALID(hvd_alltoall(&good, NULL, NULL), "handle is null");
  INVALID(hvd_reducescatter(&good, NULL, NULL, NULL), "handle is null");
  INVALID(hvd_grouped_reducescatter(&good, 1, NULL, NULL), "handle is null");
  INVALID(hvd_join_async(NULL), "handle is null");
  INVALID(hvd_send(NULL, 0, NULL), "the tensor is null");
  INVALID(hvd_recv_async(&good, 0, NULL, NULL), "handle is null");
  INVALID(hvd_send(&good, rank, NULL), "cannot send to itself");
  INVALID(hvd_recv(&good, size, NULL), "there is no rank");
  INVALID(hvd_wait(-5), "handle -5 does not exist");
  INVALID(hvd_on_done(123456, note_done, NULL), "handle 123456");

  hvd_options options = HVD_OPTIONS_INIT;
  options.op = 6;
  INVALID(hvd_allreduce(&good, NULL, &options), "op is 6");
  options.op = 256;
  INVALID(hvd_allreduce(&good, NULL, &options), "op is 256");
  options.op = HVD_SUM;
  options.compression = 3;
  INVALID(hvd_allreduce(&good, NULL, &options), "compression is 3");
  options.compression = 0;
  options.root = size;
  INVALID(hvd_broadcast(&good, NULL, &options), "no root rank");
  options.split_count = 1;
  INVALID(hvd_alltoall(&good, &options, &handle), "options.splits is null");
  options.split_count = 0;
  options.size = 1;
  INVALID(hvd_allreduce(&good, NULL, &options), "options.size is 1");
  struct {
    hvd_options options;
    int64_t newer;
  } future = {HVD_OPTIONS_INIT, 1};
  future.options.size = sizeof(future);
  INVALID(hvd_barrier(&future.options), "newer version");
  future.newer = 0;
  CHECK(hvd_barrier(&future.options) == HVD_OK);
  INVALID(hvd_options_init(NULL, sizeof(options)), "options is null");
  INVALID(hvd_options_init(&options, 2), "2 bytes");
  CHECK(hvd_options_init(&options, sizeof(options)) == HVD_OK && options.prescale == 1);
}

/* --- the reducer --- */

static void zeros(void* data, const hvd_tensor* gradient) {
  ++*(int*)data;
  memset(gradient->data, 0, 2 * sizeof(float));
}

/* The rows of each step are those of this step, although memory is used again. */
static void rows_of_many_steps(void) {
  enum { kSteps = 20, kWidth = 64 };
  static float values[kWidth];
  void* held[kSteps];
  hvd_reducer reducer;
  hvd_reducer_options options = HVD_REDUCER_OPTIONS_INIT;
  options.name = "many steps";
  options.op = HVD_SUM;
  CHECK(hvd_reducer_create(&options, &reducer) == HVD_OK);
  const int64_t table[2] = {size * kSteps, kWidth}, one[1] = {1}, row[2] = {1, kWidth};
  const hvd_tensor embedding = HVD_TENSOR_OF(NULL, table, 2, HVD_FLOAT32, HVD_HOST);
  CHECK(hvd_reducer_add_sparse(reducer, "e", &embedding) == 0);
  for (int step = 0; step < kSteps; ++step) {
    int64_t index = step * size + rank;
    const hvd_tensor indices = HVD_TENSOR_OF(&index, one, 1, HVD_INT64, HVD_HOST);
    const hvd_tensor rows = HVD_TENSOR_OF(values, row, 2, HVD_FLOAT32, HVD_HOST);
    CHECK(hvd_reducer_ready_sparse(reducer, 0, &indices, &rows) == HVD_OK);
    CHECK(hvd_reducer_synchronize(reducer) == HVD_OK);
    hvd_tensor all = HVD_TENSOR_INIT, of_all = HVD_TENSOR_INIT;
    CHECK(hvd_reducer_reduced(reducer, 0, &all, &of_all) == HVD_OK);
    for (int r = 0; r < size; ++r) CHECK(((int64_t*)all.data)[r] == step * size + r);
    CHECK(hvd_reducer_next_step(reducer) == HVD_OK);
    /* Takes the memory of the indices, and leaves that of the values. */
    held[step] = malloc((size_t)size * sizeof(int64_t));
    memset(held[step], -1, (size_t)size * sizeof(int64_t));
  }
  for (int step = 0; step < kSteps; ++step) free(held[step]);
  CHECK(hvd_reducer_release(reducer) == HVD_OK);
}

/* Gradients "a" and "b", a group that is added up, in a step of two passes. */
static void moved_gradients(hvd_reducer reducer) {
  float a[2] = {2, 2}, b[2] = {3, 3};
  const hvd_tensor first = vector(a, two), second = vector(b, two);
  CHECK(hvd_reducer_ready_at(reducer, 0, &first, NULL) == HVD_OK);
  if (rank == 0) CHECK(hvd_reducer_ready_at(reducer, 1, &second, NULL) == HVD_OK);
  size_t missing[1] = {9};
  size_t count = 9;
  int code = HVD_OK;
  do {
    code = hvd_reducer_missing_for(reducer, 1, missing, 1, &count);
  } while (code == HVD_ERROR_NOT_READY);
  CHECK(code == HVD_OK && count == (rank != 0) && missing[0] == (rank != 0 ? 1 : 9));
  INVALID(hvd_reducer_missing_for(reducer, 1, NULL, 1, &count), "indices is null");
  INVALID(hvd_reducer_missing_for(reducer, 1, missing, 1, NULL), "count is null");
  INVALID(hvd_reducer_ready_at(reducer, 1, NULL, NULL), "the gradient is null");
  if (rank != 0) CHECK(hvd_reducer_ready_at(reducer, 1, &second, NULL) == HVD_OK);
  do {
    code = hvd_reducer_synchronize_for(reducer, 1);
  } while (code == HVD_ERROR_NOT_READY);
  CHECK(code == HVD_OK && a[0] == 2 * (float)size && b[1] == 3 * (float)size);
  CHECK(hvd_reducer_present(reducer, 2) == 0);
  CHECK(hvd_reducer_next_step(reducer) == HVD_OK);
}

static void reducers(void) {
  hvd_reducer reducer = 0;
  hvd_reducer_options options = HVD_REDUCER_OPTIONS_INIT;
  float a[2] = {(float)(rank + 1), 0}, b[2] = {5, 5};
  int zeroed = 0;
  hvd_tensor first = vector(a, two), second = vector(b, two);
  const char* names[2] = {"a", "b"};
  const char* const* groups[1] = {names};
  const size_t sizes[1] = {2};
  options.op = HVD_SUM;
  options.groups = groups;
  options.group_sizes = sizes;
  options.group_count = 1;
  options.fill_zeros = zeros;
  options.fill_zeros_data = &zeroed;
  CHECK(hvd_reducer_create(&options, &reducer) == HVD_OK && reducer != 0);
  CHECK(hvd_reducer_add(reducer, "a", &first) == 0 && hvd_reducer_add(reducer, "b", &second) == 1);
  const int64_t table[2] = {size, 2};
  const hvd_tensor embedding = HVD_TENSOR_OF(NULL, table, 2, HVD_FLOAT32, HVD_HOST);
  CHECK(hvd_reducer_add_sparse(reducer, "e", &embedding) == 2 && hvd_reducer_size(reducer) == 3);
  CHECK(hvd_reducer_index_of(reducer, "e") == 2);
  signal_of now = SIGNAL_INIT;
  now.set = 1;
  const hvd_ready_event event = HVD_READY_EVENT_OF(is_set, wait_signal, release_signal, &now);
  CHECK(hvd_reducer_ready(reducer, 0, &event) == HVD_OK);
  if (rank == 0) CHECK(hvd_reducer_ready(reducer, 1, NULL) == HVD_OK);
  int64_t index = rank;
  float values[2] = {1, 2};
  const int64_t one[1] = {1}, row[2] = {1, 2};
  const hvd_tensor indices = HVD_TENSOR_OF(&index, one, 1, HVD_INT64, HVD_HOST);
  const hvd_tensor rows = HVD_TENSOR_OF(values, row, 2, HVD_FLOAT32, HVD_HOST);
  CHECK(hvd_reducer_ready_sparse(reducer, 2, &indices, &rows) == HVD_OK);
  CHECK(hvd_reducer_synchronized(reducer) == 0);
  CHECK(hvd_reducer_synchronize(reducer) == HVD_OK && hvd_reducer_synchronized(reducer) == 1);
  CHECK(a[0] == sum_of_ranks() && b[0] == 5 && zeroed == (rank != 0));
  CHECK(hvd_reducer_present(reducer, 1) == 1 && hvd_reducer_in_flight(reducer) == 0);
  wait_released(&now);
  hvd_tensor all = HVD_TENSOR_INIT, of_all = HVD_TENSOR_INIT, again = HVD_TENSOR_INIT;
  CHECK(hvd_reducer_reduced(reducer, 2, &all, &of_all) == HVD_OK);
  CHECK(hvd_reducer_reduced(reducer, 2, &all, &again) == HVD_OK && again.shape == of_all.shape);
  CHECK(all.shape[0] == size && ((int64_t*)all.data)[size - 1] == size - 1);
  CHECK(of_all.shape[1] == 2 && ((float*)of_all.data)[1] == 2);
  INVALID(hvd_reducer_reduced(reducer, 0, &all, &of_all), "in its own memory");
  INVALID(hvd_reducer_reduced(reducer, 2, NULL, &of_all), "indices is null");
  INVALID(hvd_reducer_reduced(reducer, 2, &all, NULL), "values is null");
  INVALID(hvd_reducer_synchronize(reducer), "next_step()");
  CHECK(hvd_reducer_zero_gradients(reducer) == HVD_OK && a[0] == 0);
  CHECK(hvd_reducer_next_step(reducer) == HVD_OK);
  CHECK(hvd_reducer_set_backward_passes_per_step(reducer, 2) == HVD_OK);
  INVALID(hvd_reducer_set_backward_passes_per_step(reducer, 0), "1 or more");
  INVALID(hvd_reducer_present(reducer, 0), "between synchronize()");
  moved_gradients(reducer);
  float c[2] = {1, 1};
  CHECK(hvd_reducer_rebind(reducer, 0, c) == HVD_OK);
  INVALID(hvd_reducer_rebind(reducer, 1, NULL), "null");
  CHECK(hvd_reducer_ready(reducer, 0, NULL) == HVD_OK &&
        hvd_reducer_ready(reducer, 0, NULL) == HVD_OK);
  INVALID(hvd_reducer_ready(reducer, 0, &event), "3. time");
  CHECK(now.released == 2);
  const hvd_ready_event deaf = HVD_READY_EVENT_OF(is_set, NULL, release_signal, &now);
  INVALID(hvd_reducer_ready(reducer, 1, &deaf), "`ready` and `wait`");
  CHECK(now.released == 3);
  INVALID(hvd_reducer_ready(reducer, 3, NULL), "no gradient 3");
  INVALID(hvd_reducer_ready_sparse(reducer, 2, NULL, &rows), "the indices is null");
  INVALID(hvd_reducer_ready_sparse(reducer, 2, &indices, NULL), "the values is null");
  index = size;
  INVALID(hvd_reducer_ready_sparse(reducer, 2, &indices, &rows), "no row");
  INVALID(hvd_reducer_next_step(reducer), "not synchronized");
  INVALID(hvd_reducer_zero_gradients(reducer), "not synchronized");
  CHECK(hvd_reducer_synchronize(reducer) == HVD_OK && c[0] == (float)size);
  CHECK(hvd_reducer_reset(reducer) == HVD_OK);
  INVALID(hvd_reducer_add(reducer, "late", &first), "too late");
  CHECK(hvd_reducer_release(reducer) == HVD_OK && hvd_reducer_release(0) == HVD_OK);
  INVALID(hvd_reducer_release(reducer), "reducer");
  INVALID(hvd_reducer_synchronize(reducer), "does not exist");
  INVALID(hvd_reducer_synchronized(reducer), "does not exist");
  INVALID(hvd_reducer_size(reducer), "does not exist");
  INVALID(hvd_reducer_ready(reducer, 0, NULL), "does not exist");
  INVALID(hvd_reducer_next_step(reducer), "does not exist");
  INVALID(hvd_reducer_zero_gradients(reducer), "does not exist");
  INVALID(hvd_reducer_rebind(reducer, 0, c), "does not exist");
  INVALID(hvd_reducer_reset(reducer), "does not exist");
  INVALID(hvd_reducer_present(reducer, 0), "does not exist");
  INVALID(hvd_reducer_in_flight(reducer), "does not exist");
  INVALID(hvd_reducer_synchronize_for(reducer, 1), "does not exist");

  INVALID(hvd_reducer_create(NULL, NULL), "reducer is null");
  options.group_count = 2;
  options.group_sizes = NULL;
  INVALID(hvd_reducer_create(&options, &reducer), "options.group_sizes is null");
  options.groups = NULL;
  INVALID(hvd_reducer_create(&options, &reducer), "options.groups is null");
  options.group_count = 0;
  options.op = 9;
  INVALID(hvd_reducer_create(&options, &reducer), "op is 9");
  options.op = HVD_SUM;
  options.gradient_predivide_factor = 2;
  INVALID(hvd_reducer_create(&options, &reducer), "average only");
  options.size = 0;
  INVALID(hvd_reducer_create(&options, &reducer), "options.size is 0");
  INVALID(hvd_reducer_options_init(NULL, 1), "options is null");
  INVALID(hvd_reducer_options_init(&options, 1), "1 bytes");
  CHECK(hvd_reducer_options_init(&options, sizeof(options)) == HVD_OK);
  CHECK(options.backward_passes_per_step == 1);
  CHECK(hvd_reducer_create(&options, &reducer) == HVD_OK);
  INVALID(hvd_reducer_add(reducer, NULL, &first), "name is null");
  INVALID(hvd_reducer_add(reducer, "a", NULL), "the gradient is null");
  INVALID(hvd_reducer_add_sparse(reducer, "a", NULL), "the gradient is null");
  INVALID(hvd_reducer_index_of(reducer, "a"), "no gradient \"a\"");
  INVALID(hvd_reducer_index_of(reducer, NULL), "name is null");
  CHECK(hvd_reducer_release(reducer) == HVD_OK);
}

/* --- shards --- */

static void shards(void) {
  enum { kShards = 5 };
  int32_t first = 9, last = 9;
  CHECK(hvd_shards_of(kShards, 0, 1, &first, &last) == HVD_OK && first == 0 && last == kShards);
  INVALID(hvd_shards_of(0, 0, 1, &first, &last), "from 1 to");
  INVALID(hvd_shards_of(1, 0, 1, NULL, &last), "first is null");
  INVALID(hvd_shards_of(1, 0, 1, &first, NULL), "last is null");

  uint32_t numbers[4] = {0}, later[2] = {0};
  CHECK(hvd_shard_random(0, 0, 0, 0, numbers, 4) == HVD_OK && numbers[0] == 0x6627e8d5U);
  CHECK(hvd_shard_random(0, 0, 0, 2, later, 2) == HVD_OK);
  CHECK(later[0] == numbers[2] && later[1] == numbers[3]);
  CHECK(hvd_shard_random(0, 0, 0, 0, NULL, 0) == HVD_OK);
  INVALID(hvd_shard_random(0, 0, 0, 0, NULL, 1), "numbers is null");

  hvd_shard_reducer reducer = 0;
  hvd_shard_reducer_options options = HVD_SHARD_REDUCER_OPTIONS_INIT;
  options.shards = kShards;
  float a[2] = {0, 0}, b[2] = {0, 0};
  const hvd_tensor gradient = vector(a, two);
  CHECK(hvd_shard_reducer_create(&options, &reducer) == HVD_OK && reducer != 0);
  CHECK(hvd_shard_reducer_add(reducer, "a", &gradient) == HVD_OK);
  INVALID(hvd_shard_reducer_add(reducer, NULL, &gradient), "name is null");
  INVALID(hvd_shard_reducer_add(reducer, "b", NULL), "the gradient is null");
  CHECK(hvd_shard_reducer_own(reducer, &first, &last) == HVD_OK);
  INVALID(hvd_shard_reducer_own(reducer, NULL, &last), "first is null");
  INVALID(hvd_shard_reducer_ready(reducer, last), "this rank has");
  CHECK(hvd_shard_reducer_reset(reducer) == HVD_OK);
  for (int step = 0; step < 2; ++step) {
    for (int32_t shard = first; shard < last; ++shard) {
      a[0] = a[1] = (float)shard;
      CHECK(hvd_shard_reducer_ready(reducer, shard) == HVD_OK);
    }
    CHECK(hvd_shard_reducer_rebind(reducer, 0, b) == HVD_OK);
    int code = step == 0 ? hvd_shard_reducer_synchronize(reducer) : HVD_ERROR_NOT_READY;
    while (code == HVD_ERROR_NOT_READY) code = hvd_shard_reducer_synchronize_for(reducer, 1);
    CHECK(code == HVD_OK && hvd_shard_reducer_in_flight(reducer) == 0);
    CHECK(b[0] == (kShards - 1) / 2.0F && b[1] == b[0]);
    CHECK(hvd_shard_reducer_rebind(reducer, 0, a) == HVD_OK);
  }
  /* A step with a number; its shards are computed once. */
  int32_t own[kShards];
  size_t count = 0;
  for (int time = 0; time < 2; ++time) {
    CHECK(hvd_shard_reducer_begin(reducer, 7, own, kShards, &count) == HVD_OK);
    CHECK(count == (time == 0 ? (size_t)(last - first) : 0));
    for (size_t i = 0; i < count; ++i) {
      const int64_t samples[2] = {own[i], 9};
      a[0] = a[1] = (float)own[i];
      CHECK(hvd_shard_reducer_ready_of(reducer, own[i], samples, 2) == HVD_OK);
    }
    CHECK(hvd_shard_reducer_synchronize(reducer) == HVD_OK && a[0] == (kShards - 1) / 2.0F);
  }
  INVALID(hvd_shard_reducer_begin(reducer, 8, NULL, 1, &count), "shards is null");
  INVALID(hvd_shard_reducer_begin(reducer, 8, own, 1, NULL), "count is null");
  INVALID(hvd_shard_reducer_ready_of(reducer, 0, NULL, 1), "samples is null");
  INVALID(hvd_shard_reducer_rebind(reducer, 1, a), "no gradient 1");
  CHECK(hvd_shard_reducer_release(reducer) == HVD_OK && hvd_shard_reducer_release(0) == HVD_OK);
  INVALID(hvd_shard_reducer_release(reducer), "shard reducer");
  INVALID(hvd_shard_reducer_ready(reducer, 0), "does not exist");
  INVALID(hvd_shard_reducer_synchronize(reducer), "does not exist");
  INVALID(hvd_shard_reducer_synchronize_for(reducer, 1), "does not exist");
  INVALID(hvd_shard_reducer_in_flight(reducer), "does not exist");
  INVALID(hvd_shard_reducer_reset(reducer), "does not exist");

  INVALID(hvd_shard_reducer_create(&options, NULL), "reducer is null");
  options.op = HVD_MAX;
  INVALID(hvd_shard_reducer_create(&options, &reducer), "Average or Sum");
  CHECK(hvd_shard_reducer_options_init(&options, sizeof(options)) == HVD_OK);
  INVALID(hvd_shard_reducer_create(&options, &reducer), "from 1 to");
  INVALID(hvd_shard_reducer_options_init(NULL, sizeof(options)), "options is null");
}

/* Large enough to be reduced where it lies. */
static void shared_memory(void) {
  enum { kElements = 100000 };
  float* const data = hvd_alloc(kElements * sizeof(float));
  CHECK(data != NULL);
  const int64_t length[1] = {kElements};
  hvd_tensor tensor = vector(data, length);
  hvd_options options = HVD_OPTIONS_INIT;
  options.op = HVD_SUM;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kElements; ++i) data[i] = (float)(rank + 1);
    CHECK(hvd_allreduce(&tensor, NULL, &options) == HVD_OK);
    for (int i = 0; i < kElements; ++i) CHECK(data[i] == sum_of_ranks());
  }
  hvd_free(data);
  hvd_free(NULL);
  void* const nothing = hvd_alloc(0);
  CHECK(nothing != NULL);
  hvd_free(nothing);
  CHECK(hvd_alloc((size_t)1 << 62) == NULL);
  CHECK(hvd_last_error_code() == HVD_ERROR_OUT_OF_MEMORY);
}

static int work(void) {
  before_init();
  hvd_init_options options = HVD_INIT_OPTIONS_INIT;
  options.dynamic_process_sets = 1;
  CHECK(strcmp(hvd_version(), HVD_VERSION_STRING) == 0);
  CHECK(hvd_init(&options) == HVD_OK && hvd_init(NULL) == HVD_OK && hvd_is_initialized() == 1);
  hvd_init_options others = HVD_INIT_OPTIONS_INIT;
  others.process_sets_shrink = 1;
  INVALID(hvd_init(&others), "other options");
  rank = hvd_rank();
  size = hvd_size();
  CHECK(rank >= 0 && rank < size && hvd_local_size() == size && hvd_local_rank() == rank);
  CHECK(hvd_cross_rank() == 0 && hvd_cross_size() == 1 && hvd_is_homogeneous() == 1);
  CHECK(hvd_mpi_enabled() == 0 && hvd_mpi_threads_supported() == 0 && hvd_mpi_built() >= 0 &&
        hvd_ccl_built() >= 0);
  allreduces();
  moves();
  objects();
  seams();
  sets();
  tensors_of_other_versions();
  wrong_tensors();
  reducers();
  shards();
  shared_memory();
  rows_of_many_steps();
  CHECK(hvd_barrier(NULL) == HVD_OK);
  CHECK(hvd_shutdown() == HVD_OK && hvd_is_initialized() == 0);

  /* Again, with a set from the start, and none that can be added. */
  const int32_t zero[1] = {0};
  const int32_t* lists[1] = {zero};
  const size_t sizes[1] = {1};
  options = (hvd_init_options)HVD_INIT_OPTIONS_INIT;
  options.process_sets = lists;
  options.process_set_sizes = sizes;
  options.process_set_count = size > 1 ? 1 : 0;
  CHECK(hvd_init(&options) == HVD_OK);
  if (size > 1) CHECK(hvd_process_set_size(1) == 1 && hvd_process_set_included(1) == (rank == 0));
  REFUSED(hvd_add_process_set(zero, 1), HVD_ERROR_NOT_DYNAMIC, "");
  printf("ok %d.\n", rank);
  fflush(stdout);
  CHECK(hvd_shutdown() == HVD_OK);
  return 0;
}

/* Rank 1 is lost: the others are told whom they miss. */
static int loss(void) {
  CHECK(hvd_init(NULL) == HVD_OK);
  float data[2] = {1, 1};
  hvd_tensor tensor = vector(data, two);
  int code = HVD_OK;
  for (int step = 0; code == HVD_OK; ++step) {
    if (hvd_rank() == 1 && step == 10) _Exit(9);
    code = hvd_allreduce(&tensor, NULL, NULL);
  }
  CHECK(code == HVD_ERROR_COLLECTIVE && hvd_last_error_code() == code);
  CHECK(hvd_last_error_rank() == 1 && strcmp(hvd_last_error_host(), "localhost") == 0);
  CHECK(strlen(hvd_last_error_cause()) > 0);
  CHECK(hvd_allreduce(&tensor, NULL, NULL) == HVD_ERROR_COLLECTIVE && hvd_last_error_rank() == 1);
  printf("lost rank 1.\n");
  fflush(stdout);
  CHECK(hvd_shutdown() == HVD_OK);
  return 0;
}

/* Rank 0 says when; the others' calls change nothing. */
static int timeline(const char* path) {
  float data[2] = {1, 2};
  hvd_tensor tensor = vector(data, two);
  CHECK(hvd_init(NULL) == HVD_OK);
  rank = hvd_rank();
  INVALID(hvd_start_timeline(NULL, 0), "path is null");
  CHECK(hvd_stop_timeline() == HVD_OK);
  if (rank == 0) {
    INVALID(hvd_start_timeline("/no/such/directory/timeline.json", 0), "/no/such/directory");
  }
  CHECK(hvd_start_timeline(path, 1) == HVD_OK);
  CHECK(hvd_start_timeline("/no/such/directory/timeline.json", 1) == HVD_OK);
  CHECK(hvd_barrier(NULL) == HVD_OK);
  CHECK(hvd_allreduce(&tensor, NULL, NULL) == HVD_OK);
  CHECK(hvd_stop_timeline() == HVD_OK);
  CHECK(hvd_barrier(NULL) == HVD_OK);
  printf("ok %d.\n", rank);
  return hvd_shutdown() == HVD_OK ? 0 : 1;
}

/* Follows the world, and trains with nothing of hvd, until it has seen world GENERATION. */
static int follow(const char* until) {
  hvd_place place = HVD_PLACE_INIT;
  uint64_t proposed = 0;
  CHECK(hvd_follow_ended() == HVD_ERROR_NOT_INITIALIZED);
  CHECK(hvd_follow_next(&place, 0) == HVD_ERROR_NOT_INITIALIZED);
  CHECK(hvd_follow() == HVD_OK && hvd_follow() == HVD_OK);
  REFUSED(hvd_init(NULL), HVD_ERROR_INIT, "hvd_follow() was called");
  INVALID(hvd_follow_next(NULL, 0), "place is null");
  INVALID(hvd_follow_proposed(NULL), "generation is null");
  hvd_place wrong = {3, 0, 0, 0, 0, 0, 0, 0};
  INVALID(hvd_follow_next(&wrong, 0), "options.size is 3");
  int code = HVD_OK;
  do {
    code = hvd_follow_next(&place, 5);
    if (code == HVD_OK) {
      printf("in %d: rank %d of %d, pid %d.\n", (int)place.generation, place.rank, place.ranks,
             (int)getpid());
      fflush(stdout);
      CHECK(place.local_size == place.ranks && place.local_rank == place.rank);
      CHECK(place.cross_size == 1 && place.cross_rank == 0);
    } else if (code == HVD_ERROR_NOT_READY && place.generation != 0 && place.rank == 0 &&
               hvd_follow_proposed(&proposed) == 1 && proposed > place.generation) {
      CHECK(hvd_follow_committed(proposed) == HVD_OK);
    }
  } while ((code == HVD_OK || code == HVD_ERROR_NOT_READY) &&
           place.generation < strtoull(until, NULL, 10));
  if (code == HVD_ERROR_LEFT) {
    printf("left.\n");
    return 0;
  }
  CHECK(code == HVD_OK && hvd_follow_done() == HVD_OK);
  return 0;
}

/* Without hvdrun there is nothing to follow. */
static int follow_nothing(void) {
  REFUSED(hvd_follow(), HVD_ERROR_INIT, "hvdrun has not started this process");
  CHECK(hvd_init(NULL) == HVD_OK);
  REFUSED(hvd_follow(), HVD_ERROR_INIT, "hvd_init() was called before it");
  CHECK(hvd_shutdown() == HVD_OK);
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "follow") == 0) return follow(argv[2]);
  if (argc == 2 && strcmp(argv[1], "follow") == 0) return follow_nothing();
  if (argc == 3 && strcmp(argv[1], "timeline") == 0) return timeline(argv[2]);
  if (argc == 2 && strcmp(argv[1], "work") == 0) return work();
  if (argc == 2 && strcmp(argv[1], "loss") == 0) {
    signal(SIGTERM, SIG_IGN); /* hvdrun stops them at once; what they have to say comes first */
    return loss();
  }
  return 2;
}
