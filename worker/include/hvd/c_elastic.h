/* Elastic training for C and for languages that can call C: the same power as hvd/elastic.h and
 * hvd/sampler.h, whose comments say what happens when. Included by hvd/c_api.h, which says what is
 * true of all calls and names the codes that most of them share.
 *
 *     static int train(void* data) {
 *       while (step < steps) {
 *         int code = train_one_step(data);
 *         ++step;
 *         if (code == HVD_OK) code = hvd_state_commit(state);
 *         if (code != HVD_OK) return code;
 *       }
 *       return HVD_OK;
 *     }
 *
 *     hvd_init(NULL);
 *     hvd_state_create(NULL, &state);
 *     hvd_state_add_memory(state, "weights", weights, sizeof(weights));
 *     hvd_state_add_memory(state, "step", &step, sizeof(step));
 *     int code = hvd_elastic_run(state, train, NULL, NULL);
 *
 * Callbacks return HVD_OK or a code. One that returns the code of a call of hvd that has just
 * failed on its thread hands that failure on as it is, with all that hvd_last_error() says of it.
 * Any other code is the program's own; positive ones never collide with those of hvd. It goes
 * through hvd and comes back from the call that ran the callback. hvd_fail() gives it a text. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <hvd/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): names as C has them */

struct hvd_tensor;

/* CUDA's cudaStream_t. Null is the legacy stream. */
typedef struct CUstream_st* hvd_cuda_stream;

/* The number of the world that this process is in, into `generation`: it grows with each one.
 * Returns HVD_OK, HVD_ERROR_NOT_INITIALIZED, HVD_ERROR_INVALID_ARGUMENT (null). */
HVD_API int hvd_generation(uint64_t* generation);

/* --- the sampler --------------------------------------------------------------------------- */

/* 0 is none. Each one is released once; a state that it was added to keeps it alive. For one thread
 * at a time. Of all calls below HVD_ERROR_INVALID_ARGUMENT: an argument is wrong, or there is no
 * such sampler. */
typedef int64_t hvd_sampler;

/* A sampler of `size` samples, numbered from 0; `shuffle`: 1 or 0. Returns HVD_OK,
 * HVD_ERROR_INVALID_ARGUMENT, HVD_ERROR_OUT_OF_MEMORY. */
HVD_API int hvd_sampler_create(int64_t size, int32_t shuffle, uint64_t seed, hvd_sampler* sampler);
HVD_API int hvd_sampler_release(hvd_sampler sampler); /* HVD_OK, also of 0 */
/* The next samples of this rank, into `indices`, which has room for `batch` of them, and how many
 * they are: `batch`, or fewer in the last step of an epoch, or 0 after it; as many on every rank.
 * They count as processed at once. Negative: HVD_ERROR_NOT_INITIALIZED, as above. */
HVD_API int64_t hvd_sampler_next(hvd_sampler sampler, int64_t batch, int64_t* indices);
/* Begins this epoch from its first sample; the current one goes on. Returns HVD_OK, as above. */
HVD_API int hvd_sampler_set_epoch(hvd_sampler sampler, int64_t epoch);
/* Samples of this epoch, of all ranks together. Negative: as above. */
HVD_API int64_t hvd_sampler_epoch(hvd_sampler sampler);
HVD_API int64_t hvd_sampler_processed(hvd_sampler sampler);
HVD_API int64_t hvd_sampler_remaining(hvd_sampler sampler); /* 0: the epoch is done */

/* --- the state ----------------------------------------------------------------------------- */

enum hvd_commit_mode {
  HVD_COMMIT_COPY = 0, /* a commit copies the state */
  HVD_COMMIT_MARK = 1  /* no copy; changes happen only inside hvd_state_mutate() */
};

typedef struct hvd_state_options {
  size_t size;
  int32_t mode;          /* hvd_commit_mode */
  int32_t compare_every; /* commits between two comparisons of the ranks' states; 0: never */
  /* Brings the program's objects to its last checkpoint, where every worker that held the committed
   * state is gone. Called on rank 0. Null: hvd_elastic_run() fails then. */
  int (*loader)(void* data);
  void* loader_data;
  /* The stream in which the program works with the tensors of a GPU that it adds.
   * Null: the legacy stream. */
  hvd_cuda_stream cuda_stream;
} hvd_state_options;

#define HVD_STATE_OPTIONS_INIT \
  { sizeof(hvd_state_options), HVD_COMMIT_COPY, 0, NULL, NULL, NULL }
HVD_API int hvd_state_options_init(hvd_state_options* options, size_t size);

/* The state that must survive. 0 is none. Each one is released once, not while hvd_elastic_run()
 * runs it. It refers to the program's memory, which must live as long. All ranks add the same
 * names, in the same order, before hvd_elastic_run(). For one thread at a time. Of all calls below
 * HVD_ERROR_INVALID_ARGUMENT: an argument is wrong, there is no such state, or it is not the time
 * for the call; HVD_ERROR_OUT_OF_MEMORY. */
typedef int64_t hvd_state;

HVD_API int hvd_state_create(const hvd_state_options* options, hvd_state* state);
HVD_API int hvd_state_release(hvd_state state); /* HVD_OK, also of 0 */

/* Memory of the host, of a size that does not change; a tensor of the host or of the GPU that this
 * worker works on; a sampler. Return HVD_OK, as above. */
HVD_API int hvd_state_add_memory(hvd_state state, const char* name, void* memory, size_t bytes);
HVD_API int hvd_state_add_tensor(hvd_state state, const char* name,
                                 const struct hvd_tensor* tensor);
HVD_API int hvd_state_add_sampler(hvd_state state, const char* name, hvd_sampler sampler);

/* Something of the program's own, kept as bytes. A load must take what a save on another rank gave.
 * The functions are called on the thread that calls hvd. */
typedef struct hvd_state_handler {
  size_t size; /* of this struct */
  /* The number of bytes that save() will write now, into `bytes`. A worker that is to receive the
   * state, at the start of a job each but rank 0, calls both before its first load(): bytes that it
   * has already need not come. If they fail then, all of it comes. */
  int (*bytes)(void* data, size_t* bytes);
  int (*save)(void* data, void* into, size_t bytes);       /* exactly so many */
  int (*load)(void* data, const void* from, size_t bytes); /* into the program's object */
  /* Called once, when the state is released, or if the handler could not be added unless `size`
   * makes no sense. May be null. */
  void (*release)(void* data);
  void* data;
} hvd_state_handler;

#define HVD_STATE_HANDLER_INIT \
  { sizeof(hvd_state_handler), NULL, NULL, NULL, NULL, NULL }
HVD_API int hvd_state_add_handler(hvd_state state, const char* name,
                                  const hvd_state_handler* handler);
/* Called by hvd_elastic_run() in each later generation, with the state in place, before the
 * program's function, in the order in which they were added. */
HVD_API int hvd_state_on_reset(hvd_state state, int (*callback)(void* data), void* data);
/* Called by the commit at which this worker leaves for good: its host goes, it was told to, or the
 * job is suspended. All ranks have committed, and the program's memory is what it was then. It has
 * until --leave-grace is over, and uses no collective. A code of its own comes from the commit. */
HVD_API int hvd_state_on_notice(hvd_state state, int (*callback)(void* data), void* data);

/* --- while it runs ------------------------------------------------------------------------- */

/* All ranks agree to have come this far; from now on nothing before is lost. Returns HVD_OK;
 * HVD_ERROR_HOSTS_UPDATED: the world changes here, and HVD_ERROR_COLLECTIVE: it has failed; the
 * program's function is to return either code, and is called again; HVD_ERROR_NOT_INITIALIZED;
 * HVD_ERROR_INVALID_ARGUMENT also: other ranks are at another commit; HVD_ERROR_STATE_DIVERGED; the
 * code of a handler. */
HVD_API int hvd_state_commit(hvd_state state);
/* The same if the world is to change: the state is committed as it is now. Else nothing is, which
 * costs less. Returns what hvd_state_commit() does. */
HVD_API int hvd_state_check(hvd_state state);
/* The first half of hvd_state_check(): whether the world is to change, 1 or 0, into `is_due`; all
 * ranks get the same answer. After a 1 all of them call hvd_state_commit(). For languages that
 * have to pack their objects before a commit. Returns what hvd_state_commit() does. */
HVD_API int hvd_state_change_due(hvd_state state, int32_t* is_due);
/* Brings the program's objects back to this rank's last commit. */
HVD_API int hvd_state_restore(hvd_state state);
/* All ranks get what rank 0's objects hold now. Returns what hvd_state_commit() does. */
HVD_API int hvd_state_sync(hvd_state state);
/* HVD_COMMIT_MARK: `change` changes what was added, and calls no collective. If it fails, this
 * rank's state counts as broken, and comes from another rank after the next change of the world.
 * Returns HVD_OK, the code of `change`, as above. */
HVD_API int hvd_state_mutate(hvd_state state, int (*change)(void* data), void* data);

typedef struct hvd_run_options {
  size_t size;
  /* 1: hvd_elastic_run() returns HVD_ERROR_LEFT in a worker that the job goes on without; 0: such a
   * worker ends its process with exit(0). */
  int32_t return_when_left;
  int32_t reserved;
} hvd_run_options;

#define HVD_RUN_OPTIONS_INIT \
  { sizeof(hvd_run_options), 0, 0 }
HVD_API int hvd_run_options_init(hvd_run_options* options, size_t size);

/* Calls `function`, and calls it again whenever the world has changed, until it has returned HVD_OK
 * on all ranks of one world. Returns HVD_OK; HVD_ERROR_LEFT (see the options);
 * HVD_ERROR_NOT_INITIALIZED (hvd_init() comes first); HVD_ERROR_COLLECTIVE: the world has failed,
 * and hvdrun cannot change it, or `function` has returned this by itself five times without a
 * commit between them (before that it ends the world for all ranks); HVD_ERROR_STATE_LOST: every
 * worker that held the committed state is gone, and there is no loader; every other code of
 * `function` or of another callback. */
HVD_API int hvd_elastic_run(hvd_state state, int (*function)(void* data), void* data,
                            const hvd_run_options* options);

/* The same for a program that keeps the loop to itself, such as one in a language whose functions
 * cannot be called from C:
 *
 *     int code = HVD_OK;
 *     int32_t call = 0;
 *     while ((code = hvd_elastic_next(state, code, &call)) == HVD_OK && call) code = train();
 *
 * Blocks until the program's function is to be called (*call is 1), or until the run is over (0).
 * In a newcomer that comes when the others are in a later run it is over at once. `code` is HVD_OK
 * where a run begins, and then what the function has come to: HVD_OK, HVD_ERROR_COLLECTIVE or
 * HVD_ERROR_HOSTS_UPDATED; every other code ends the run and is returned. The turns of a run may
 * come from different threads, one after the other. Returns what hvd_elastic_run() returns, and
 * HVD_ERROR_LEFT always in a worker that the job goes on without; HVD_ERROR_INVALID_ARGUMENT also:
 * call is null. */
HVD_API int hvd_elastic_next(hvd_state state, int code, int32_t* call);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif
