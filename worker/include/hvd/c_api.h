/* The calls of hvd for other languages: C11, and whatever can call C. The same power as hvd/hvd.h,
 * whose headers say what each call means; here stands what is particular to C (docs/c_api.md).
 *
 *     hvd_init(NULL);
 *     hvd_tensor tensor = HVD_TENSOR_OF(gradients, shape, 1, HVD_FLOAT32, HVD_HOST);
 *     hvd_options options = HVD_OPTIONS_INIT;
 *     options.name = "gradients";
 *     if (hvd_allreduce(&tensor, NULL, &options) != HVD_OK) puts(hvd_last_error());
 *     hvd_shutdown();
 *
 * All calls are safe from any thread, and no exception leaves them. A call that fails says why in
 * the calling thread's hvd_last_error(). What is wrong with an argument - a null pointer, a number
 * that stands for nothing, a handle that is none - is a code, never a crash; of memory that does
 * not exist nothing can know. Pointers in arguments are read during the call only, the elements of
 * tensors until the work is done.
 *
 * Codes that most calls share are named once:
 *   [usual]  HVD_OK; HVD_ERROR_NOT_INITIALIZED; HVD_ERROR_INVALID_ARGUMENT: an argument that can
 *            never be right; HVD_ERROR_COLLECTIVE: the world is broken; HVD_ERROR_OUT_OF_MEMORY;
 *            HVD_ERROR_INTERNAL
 *   [set]    HVD_ERROR_UNKNOWN_PROCESS_SET, HVD_ERROR_NOT_A_MEMBER
 *   [wait]   what only the ranks together can find, of the work itself: HVD_ERROR_INVALID_ARGUMENT:
 *            they disagree; HVD_ERROR_COLLECTIVE; [set]; HVD_ERROR_SHUT_DOWN;
 *            HVD_ERROR_OUT_OF_MEMORY; HVD_ERROR_INTERNAL
 * "Negative: ..." is said of calls whose result is a number: it is 0 or more, or one of these. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <hvd/c_elastic.h>
#include <hvd/c_memory.h>
#include <hvd/export.h>
#include <hvd/version.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): names as C has them */

/* --- errors -------------------------------------------------------------------------------- */

enum hvd_code {
  HVD_OK = 0,
  HVD_ERROR_NOT_INITIALIZED = -1,       /* hvd_init() comes first */
  HVD_ERROR_NOT_DYNAMIC = -2,           /* hvd_init() was not told of dynamic process sets */
  HVD_ERROR_UNKNOWN_PROCESS_SET = -3,   /* there is none of this number, or no longer */
  HVD_ERROR_NOT_A_MEMBER = -4,          /* this rank is not in the process set */
  HVD_ERROR_SHUT_DOWN = -5,             /* a rank takes no part any more */
  HVD_ERROR_DUPLICATE_PROCESS_SET = -6, /* these ranks are a process set already */
  HVD_ERROR_INVALID_ARGUMENT = -7,
  HVD_ERROR_INIT = -8,       /* the world could not be formed */
  HVD_ERROR_COLLECTIVE = -9, /* the world is broken: a member is gone, or was stopped */
  HVD_ERROR_INTERNAL = -10,  /* a bug in hvd, or in something below it */
  HVD_ERROR_OUT_OF_MEMORY = -11,
  HVD_ERROR_NOT_READY = -12,     /* the result of work that is not done */
  HVD_ERROR_LOST_MEMBER = -13,   /* of the process set, in an elastic job */
  HVD_ERROR_HOSTS_UPDATED = -14, /* at a commit all went over to another world */
  HVD_ERROR_LEFT = -15,          /* the job goes on without this worker */
  HVD_ERROR_STATE_LOST = -16,    /* every worker that held the committed state is gone */
  HVD_ERROR_STATE_DIVERGED = -17 /* the states of the ranks differ at a commit */
};

/* Of the last call of this thread that failed; what a callback is told of, during the callback.
 * Valid until the next such call. Never null: "" if there was none. */
HVD_API const char* hvd_last_error(void);
/* Its code, HVD_OK if there was none. */
HVD_API int hvd_last_error_code(void);
/* Of HVD_ERROR_COLLECTIVE: whose loss it was, -1 if that is not known, and where it ran, "". */
HVD_API int hvd_last_error_rank(void);
HVD_API const char* hvd_last_error_host(void);
/* Of HVD_ERROR_COLLECTIVE: what happened to it, "" if that is not known. */
HVD_API const char* hvd_last_error_cause(void);
/* "invalid argument"; "unknown code" of what is none. */
HVD_API const char* hvd_code_text(int code);

/* For a function or a callback that fails by itself: notes the text of the failure, and returns the
 * code. The other ranks get the text, too, where the failure ends their world.
 *
 *     if (isnan(loss)) return hvd_fail(HVD_ERROR_COLLECTIVE, "the loss is not a number");
 *
 * A text that is null counts as "". HVD_OK is no failure: nothing is noted. */
HVD_API int hvd_fail(int code, const char* text);

/* --- init and place ------------------------------------------------------------------------ */

/* Structs of options begin with their size, by which hvd knows the version that its caller was
 * compiled with. Fill them by their _INIT, or by their function in languages without macros: it
 * gives the first `size` bytes their defaults. Returns HVD_OK or HVD_ERROR_INVALID_ARGUMENT (null,
 * or a size that no version has). Where options may be null, that means the defaults. */
typedef struct hvd_init_options {
  size_t size;
  int32_t dynamic_process_sets; /* 1: they can be added and removed */
  /* 1: in an elastic job, sets of `process_sets` that have lost a member shrink; 0: they are
   * HVD_ERROR_LOST_MEMBER */
  int32_t process_sets_shrink;
  /* The ranks of each process set that exists from the start. */
  const int32_t* const* process_sets;
  const size_t* process_set_sizes;
  size_t process_set_count;
} hvd_init_options;

#define HVD_INIT_OPTIONS_INIT \
  { sizeof(hvd_init_options), 0, 0, NULL, NULL, 0 }
HVD_API int hvd_init_options_init(hvd_init_options* options, size_t size);

/* "0.1.0": of the library that this program runs with. HVD_VERSION_STRING is of this header. */
HVD_API const char* hvd_version(void);

/* Returns HVD_OK, HVD_ERROR_INIT, HVD_ERROR_INVALID_ARGUMENT (the options: wrong, or others than
 * those of the world that there is). A second call with the same options, or null, does nothing. */
HVD_API int hvd_init(const hvd_init_options* options);
/* Returns HVD_OK, also if there is no world; HVD_ERROR_INTERNAL. */
HVD_API int hvd_shutdown(void);
HVD_API int hvd_is_initialized(void); /* 1 or 0 */

/* Negative: HVD_ERROR_NOT_INITIALIZED. */
HVD_API int hvd_rank(void);
HVD_API int hvd_size(void);
HVD_API int hvd_local_rank(void);
HVD_API int hvd_local_size(void);
HVD_API int hvd_cross_rank(void);
HVD_API int hvd_cross_size(void);
HVD_API int hvd_is_homogeneous(void); /* 1 or 0 */
/* 1 or 0: as the functions of these names in hvd/hvd.h. hvd_mpi_threads_supported() returns
 * HVD_ERROR_NOT_INITIALIZED before hvd_init(). */
HVD_API int hvd_mpi_built(void);
HVD_API int hvd_mpi_enabled(void);
HVD_API int hvd_mpi_threads_supported(void);
HVD_API int hvd_ccl_built(void);

/* Records what all ranks do, into one file on rank 0's host, in Chrome's trace format. Called by
 * rank 0; calls of other ranks change nothing. `mark_cycles`: not 0: with a mark for every batch.
 * Return HVD_OK, HVD_ERROR_NOT_INITIALIZED, HVD_ERROR_INVALID_ARGUMENT (null, a file that cannot be
 * written). A start while one is being recorded, and a stop while none is, have no effect but a
 * warning in rank 0's log. hvd_stop_timeline() returns when the file is complete. */
HVD_API int hvd_start_timeline(const char* path, int mark_cycles);
HVD_API int hvd_stop_timeline(void);

/* --- process sets -------------------------------------------------------------------------- */

/* By all ranks of the world, each with the same ranks. The number of the new set. Negative:
 * [usual], [wait], HVD_ERROR_NOT_DYNAMIC, HVD_ERROR_DUPLICATE_PROCESS_SET. */
HVD_API int hvd_add_process_set(const int32_t* ranks, size_t count);
/* The same; in an elastic job, the set shrinks when it loses a member. */
HVD_API int hvd_add_shrinking_process_set(const int32_t* ranks, size_t count);
/* By these ranks alone, who also remove the set alone; also HVD_ERROR_NOT_A_MEMBER. */
HVD_API int hvd_add_process_set_by_members(const int32_t* ranks, size_t count);
/* By all ranks, or by the members of a set that they have added. Returns [usual], [wait],
 * HVD_ERROR_NOT_DYNAMIC, HVD_ERROR_NOT_A_MEMBER. */
HVD_API int hvd_remove_process_set(int32_t process_set);
/* Negative: HVD_ERROR_NOT_INITIALIZED, HVD_ERROR_UNKNOWN_PROCESS_SET. */
HVD_API int hvd_process_set_size(int32_t process_set);
HVD_API int hvd_process_set_included(int32_t process_set); /* 1 or 0 */
HVD_API int hvd_process_set_rank(int32_t process_set);     /* also HVD_ERROR_NOT_A_MEMBER */
/* Write the first `capacity` of them and return how many there are; with a capacity of 0 the
 * pointer may be null. Negative: the same, HVD_ERROR_INVALID_ARGUMENT (null). */
HVD_API int hvd_process_set_ranks(int32_t process_set, int32_t* ranks, size_t capacity);
HVD_API int hvd_process_sets(int32_t* numbers, size_t capacity);

/* --- tensors and options ------------------------------------------------------------------- */

enum hvd_data_type {
  HVD_BOOL = 0,
  HVD_UINT8 = 1,
  HVD_INT8 = 2,
  HVD_UINT16 = 3,
  HVD_INT16 = 4,
  HVD_INT32 = 5,
  HVD_INT64 = 6,
  HVD_FLOAT16 = 7,
  HVD_BFLOAT16 = 8,
  HVD_FLOAT32 = 9,
  HVD_FLOAT64 = 10,
  HVD_FLOAT8_E4M3 = 11,
  HVD_FLOAT8_E5M2 = 12
};

enum hvd_reduce_op {
  HVD_AVERAGE = 0,
  HVD_SUM = 1,
  HVD_ADASUM = 2,
  HVD_MIN = 3,
  HVD_MAX = 4,
  HVD_PRODUCT = 5
};

enum hvd_compression {
  HVD_COMPRESSION_NONE = 0,
  HVD_COMPRESSION_FLOAT16 = 1,
  HVD_COMPRESSION_BFLOAT16 = 2
};

#define HVD_HOST 0                      /* hvd_tensor.device: the memory of this process, */
#define HVD_CUDA(number) ((number) + 1) /* or that of a CUDA device */

/* A tensor. It begins with the size of the struct, as options do, so that later versions can add
 * fields. All tensors of an array have the same size, and so have all ready events of an array.
 * Fill it by HVD_TENSOR_OF, by HVD_TENSOR_INIT, or by hvd_tensor_init(). */
typedef struct hvd_tensor {
  size_t size;
  void* data; /* elements one after the other, the last dimension fastest */
  const int64_t* shape;
  int32_t dimensions; /* of shape; 0: one element */
  int32_t type;       /* hvd_data_type */
  int32_t device;     /* HVD_HOST or HVD_CUDA(n) */
  int32_t reserved;   /* 0 */
} hvd_tensor;

#define HVD_TENSOR_OF(data, shape, dimensions, type, device) \
  { sizeof(hvd_tensor), (data), (shape), (dimensions), (type), (device), 0 }
#define HVD_TENSOR_INIT HVD_TENSOR_OF(NULL, NULL, 0, HVD_FLOAT32, HVD_HOST)
HVD_API int hvd_tensor_init(hvd_tensor* tensor, size_t size);

/* Says when an input is there. The functions are called from threads of hvd. */
typedef struct hvd_ready_event {
  size_t size;
  int (*ready)(void* data); /* not 0: it is */
  void (*wait)(void* data);
  void (*release)(void* data); /* may be null; see hvd_options.ready */
  void* data;
} hvd_ready_event;

#define HVD_READY_EVENT_OF(ready, wait, release, data) \
  { sizeof(hvd_ready_event), (ready), (wait), (release), (data) }
#define HVD_READY_EVENT_INIT HVD_READY_EVENT_OF(NULL, NULL, NULL, NULL)
HVD_API int hvd_ready_event_init(hvd_ready_event* event, size_t size);

/* GPUs (hvd/cuda.h). How many this process can use, and the number of this worker's own. Negative:
 * HVD_ERROR_INVALID_ARGUMENT: there is none, or none for this worker. */
HVD_API int hvd_cuda_device_count(void);
HVD_API int hvd_cuda_device(void);
/* Fill an event that is ready when what this stream of the worker's GPU has by now is done. With
 * the second the stream itself waits for the result, and the work may be done as soon as it does.
 * Return HVD_OK, HVD_ERROR_INVALID_ARGUMENT (null, no GPU). */
HVD_API int hvd_cuda_ready_after(hvd_cuda_stream stream, hvd_ready_event* event);
HVD_API int hvd_cuda_in_order_of(hvd_cuda_stream stream, hvd_ready_event* event);

/* Makes room for a result of this shape, of the tensor `index` of a group; null: there is none.
 * Called from a thread of hvd, once, before the work is done. */
typedef void* (*hvd_allocate)(void* data, size_t index, const int64_t* shape, int32_t dimensions,
                              int32_t type);

typedef struct hvd_options {
  size_t size;
  const char* name; /* null or "": numbered by the order of this rank's calls in the set */
  int32_t op;       /* hvd_reduce_op; reductions */
  int32_t compression;
  double prescale;
  double postscale;
  int32_t root; /* broadcast: a rank of the world */
  int32_t process_set;
  const int64_t* splits; /* alltoall: rows for each rank; none: even */
  size_t split_count;
  /* None, one for all tensors of the call, or one for each. `release` of each is called once, when
   * hvd needs it no more: also if the call fails, unless because a `size` or `ready` makes no
   * sense.
   */
  const hvd_ready_event* ready;
  size_t ready_count;
  /* Null: results of unknown size lie in memory of hvd, on the device of their input, until their
   * handle is released. */
  hvd_allocate allocate;
  void* allocate_data;
} hvd_options;

#define HVD_OPTIONS_INIT                                                                         \
  {                                                                                              \
    sizeof(hvd_options), NULL, HVD_AVERAGE, HVD_COMPRESSION_NONE, 1.0, 1.0, 0, 0, NULL, 0, NULL, \
        0, NULL, NULL                                                                            \
  }
HVD_API int hvd_options_init(hvd_options* options, size_t size);

/* --- handles ------------------------------------------------------------------------------- */

/* Work in flight, or its results. 0 is none. Each one is released once. */
typedef int64_t hvd_handle;

/* Blocks until the work is done. Returns [wait] as often as it is asked; HVD_OK: it is done and
 * well; HVD_ERROR_INVALID_ARGUMENT also if there is no such handle. */
HVD_API int hvd_wait(hvd_handle handle);
/* The same, for at most so many milliseconds: HVD_ERROR_NOT_READY if the work is not done by then;
 * it goes on. A negative time counts as 0. */
HVD_API int hvd_wait_for(hvd_handle handle, int64_t timeout_ms);
/* 1: hvd_wait() will not block; 0: it would. Negative: HVD_ERROR_INVALID_ARGUMENT (no such one). */
HVD_API int hvd_ready(hvd_handle handle);
/* Calls `done` once, with what hvd_wait() would return: when the work ends, from a thread of hvd,
 * or at once from this one. It must not block; it may start work, and release the handle. Returns
 * HVD_OK, HVD_ERROR_INVALID_ARGUMENT (null, no such handle), HVD_ERROR_OUT_OF_MEMORY. */
typedef void (*hvd_callback)(void* data, int code);
HVD_API int hvd_on_done(hvd_handle handle, hvd_callback done, void* data);
/* The work goes on, and its buffers belong to hvd until it is done. Memory that hvd made for the
 * results goes. Returns HVD_OK, also of 0; HVD_ERROR_INVALID_ARGUMENT: no such handle. */
HVD_API int hvd_release(hvd_handle handle);

/* How many tensors the result has: of a group as many as it has, of one collective 1, else as the
 * call says. Negative: HVD_ERROR_NOT_READY, HVD_ERROR_INVALID_ARGUMENT, [wait]. */
HVD_API int hvd_result_count(hvd_handle handle);
/* Writes one of them into `tensor`, whose `size` the caller has set (HVD_TENSOR_INIT). Pointer and
 * shape are valid until the handle is released. Returns HVD_OK, HVD_ERROR_NOT_READY,
 * HVD_ERROR_INVALID_ARGUMENT (null, no such handle or index), [wait]. */
HVD_API int hvd_result(hvd_handle handle, size_t index, hvd_tensor* tensor);
/* Of alltoall: rows from each rank. The same. */
HVD_API int hvd_received_splits(hvd_handle handle, const int64_t** splits, size_t* count);
/* Of join: the rank that came last. Negative: as hvd_result_count(). */
HVD_API int hvd_last_joined(hvd_handle handle);

/* --- collectives --------------------------------------------------------------------------- */

/* The asynchronous calls start the work and give a handle to be released. Return [usual] and [set];
 * with another code than HVD_OK there is no handle, and *handle is 0. The synchronous ones return
 * [usual], [set] and [wait]. Where they give a handle, its work is done and it holds the result.
 *
 * `output` null: in place. Groups: arrays of `count` tensors. */

HVD_API int hvd_allreduce_async(const hvd_tensor* input, const hvd_tensor* output,
                                const hvd_options* options, hvd_handle* handle);
HVD_API int hvd_allreduce(const hvd_tensor* input, const hvd_tensor* output,
                          const hvd_options* options);
HVD_API int hvd_grouped_allreduce_async(const hvd_tensor* inputs, const hvd_tensor* outputs,
                                        size_t count, const hvd_options* options,
                                        hvd_handle* handle);
HVD_API int hvd_grouped_allreduce(const hvd_tensor* inputs, const hvd_tensor* outputs, size_t count,
                                  const hvd_options* options);

/* Of other ranks than the root only the input's shape and type are looked at. */
HVD_API int hvd_broadcast_async(const hvd_tensor* input, const hvd_tensor* output,
                                const hvd_options* options, hvd_handle* handle);
HVD_API int hvd_broadcast(const hvd_tensor* input, const hvd_tensor* output,
                          const hvd_options* options);

HVD_API int hvd_barrier_async(const hvd_options* options, hvd_handle* handle);
HVD_API int hvd_barrier(const hvd_options* options);

HVD_API int hvd_allgather_async(const hvd_tensor* input, const hvd_options* options,
                                hvd_handle* handle);
HVD_API int hvd_allgather(const hvd_tensor* input, const hvd_options* options, hvd_handle* handle);
HVD_API int hvd_grouped_allgather_async(const hvd_tensor* inputs, size_t count,
                                        const hvd_options* options, hvd_handle* handle);
HVD_API int hvd_grouped_allgather(const hvd_tensor* inputs, size_t count,
                                  const hvd_options* options, hvd_handle* handle);

HVD_API int hvd_alltoall_async(const hvd_tensor* input, const hvd_options* options,
                               hvd_handle* handle);
HVD_API int hvd_alltoall(const hvd_tensor* input, const hvd_options* options, hvd_handle* handle);

/* `output` null: hvd makes room. Else it has this rank's rows. Ranks that have joined count here,
 * too: the rows that would be theirs are lost. */
HVD_API int hvd_reducescatter_async(const hvd_tensor* input, const hvd_tensor* output,
                                    const hvd_options* options, hvd_handle* handle);
HVD_API int hvd_reducescatter(const hvd_tensor* input, const hvd_tensor* output,
                              const hvd_options* options, hvd_handle* handle);
HVD_API int hvd_grouped_reducescatter_async(const hvd_tensor* inputs, size_t count,
                                            const hvd_options* options, hvd_handle* handle);
HVD_API int hvd_grouped_reducescatter(const hvd_tensor* inputs, size_t count,
                                      const hvd_options* options, hvd_handle* handle);

/* Between two ranks of the world, while the others go on: `to` and `from` are the rank at the other
 * end. Calls are matched by name; those without one in the order in which the two ranks make them.
 * Type and shape must be the same at both ends. The tensor lies in memory of the host. */
HVD_API int hvd_send_async(const hvd_tensor* tensor, int32_t to, const hvd_options* options,
                           hvd_handle* handle);
HVD_API int hvd_send(const hvd_tensor* tensor, int32_t to, const hvd_options* options);
HVD_API int hvd_recv_async(const hvd_tensor* tensor, int32_t from, const hvd_options* options,
                           hvd_handle* handle);
HVD_API int hvd_recv(const hvd_tensor* tensor, int32_t from, const hvd_options* options);

HVD_API int hvd_join_async(hvd_handle* handle);
/* The rank that came last. Negative: [usual], [wait]. */
HVD_API int hvd_join(void);

/* --- objects, parameters, sparse tensors ------------------------------------------------------ */

/* Strings of bytes, which may differ in size from rank to rank. `bytes` may be null if there are
 * none. Blocks; the result of broadcast is one tensor of HVD_UINT8, of allgather one for each rank
 * that gave something. Return [usual], [set], [wait]. */
HVD_API int hvd_broadcast_object(const void* bytes, size_t size, const hvd_options* options,
                                 hvd_handle* handle);
HVD_API int hvd_allgather_object(const void* bytes, size_t size, const hvd_options* options,
                                 hvd_handle* handle);

/* All tensors of a list, which may stand in another order on other ranks; in place. Of the options
 * root and process set. Blocks. Returns [usual], [set], [wait]. */
HVD_API int hvd_broadcast_parameters(const char* const* names, const hvd_tensor* tensors,
                                     size_t count, const hvd_options* options);

/* `indices`: HVD_INT32 or HVD_INT64, [n] or [n, d]; `values`: [n, ...]. Average or sum. The result
 * has two tensors, the indices and the values of all ranks. */
HVD_API int hvd_sparse_allreduce_async(const hvd_tensor* indices, const hvd_tensor* values,
                                       const hvd_options* options, hvd_handle* handle);
HVD_API int hvd_sparse_allreduce(const hvd_tensor* indices, const hvd_tensor* values,
                                 const hvd_options* options, hvd_handle* handle);

/* --- the heart of a distributed optimizer (hvd/gradient_reducer.h) -----------------------------
 */

typedef struct hvd_reducer_options {
  size_t size;
  const char* name; /* null: "gradient" */
  int32_t op;
  int32_t compression;
  double gradient_predivide_factor;
  int32_t process_set;
  int32_t backward_passes_per_step;
  int32_t average_over_passes; /* 1 or 0 */
  int32_t sparse_as_dense;     /* 1 or 0 */
  int32_t number_of_groups;
  int32_t shards;                   /* 0: the average is that of the ranks */
  const char* const* const* groups; /* names; groups[g] has group_sizes[g] of them */
  const size_t* group_sizes;
  size_t group_count;
  /* Null: gradients lie in the memory of the host. */
  void (*fill_zeros)(void* data, const hvd_tensor* gradient);
  void* fill_zeros_data;
} hvd_reducer_options;

#define HVD_REDUCER_OPTIONS_INIT                                                                 \
  {                                                                                              \
    sizeof(hvd_reducer_options), NULL, HVD_AVERAGE, HVD_COMPRESSION_NONE, 1.0, 0, 1, 0, 0, 0, 0, \
        NULL, NULL, 0, NULL, NULL                                                                \
  }
HVD_API int hvd_reducer_options_init(hvd_reducer_options* options, size_t size);

/* 0 is none. Each one is released once. */
typedef int64_t hvd_reducer;

/* Of all calls below HVD_ERROR_INVALID_ARGUMENT: an argument is wrong, there is no such reducer or
 * gradient, or it is not the time for it; HVD_ERROR_OUT_OF_MEMORY. Those of which no more is said
 * return HVD_OK or one of these. */
HVD_API int hvd_reducer_create(const hvd_reducer_options* options, hvd_reducer* reducer);
HVD_API int hvd_reducer_release(hvd_reducer reducer); /* HVD_OK, also of 0 */

/* The index of the gradient. Negative: as above. */
HVD_API int64_t hvd_reducer_add(hvd_reducer reducer, const char* name, const hvd_tensor* gradient);
HVD_API int64_t hvd_reducer_add_sparse(hvd_reducer reducer, const char* name,
                                       const hvd_tensor* gradient);
HVD_API int64_t hvd_reducer_index_of(hvd_reducer reducer, const char* name);
HVD_API int64_t hvd_reducer_size(hvd_reducer reducer);

/* `ready` may be null: now. Its `release` is called once, also if the call fails. Return [usual],
 * [set]. */
HVD_API int hvd_reducer_ready(hvd_reducer reducer, size_t index, const hvd_ready_event* ready);
HVD_API int hvd_reducer_ready_sparse(hvd_reducer reducer, size_t index, const hvd_tensor* indices,
                                     const hvd_tensor* values);
/* The same, and the gradient lies there now; its type and shape may be others than before, alike on
 * all ranks. */
HVD_API int hvd_reducer_ready_at(hvd_reducer reducer, size_t index, const hvd_tensor* gradient,
                                 const hvd_ready_event* ready);
/* Which gradients other ranks have in this step, and this one has not: their number, and as many
 * indices as there is room for. Until hvd_reducer_synchronize() has returned HVD_OK, only these can
 * become ready. Blocks for at most so many milliseconds: HVD_ERROR_NOT_READY if not all ranks have
 * come so far; it goes on, and another call waits for the rest. Returns [usual], [set], [wait]. */
HVD_API int hvd_reducer_missing_for(hvd_reducer reducer, int64_t timeout_ms, size_t* indices,
                                    size_t capacity, size_t* count);
/* Blocks until all is reduced. Returns [usual], [set], [wait]. */
HVD_API int hvd_reducer_synchronize(hvd_reducer reducer);
/* The same, for at most so many milliseconds: HVD_ERROR_NOT_READY if something is in flight; it
 * goes on, and another call waits for the rest. */
HVD_API int hvd_reducer_synchronize_for(hvd_reducer reducer, int64_t timeout_ms);
/* After hvd_reducer_synchronize(), until the next step: whether a rank had this gradient, 1 or 0;
 * one that none had is as it was. Negative: as above. */
HVD_API int hvd_reducer_present(hvd_reducer reducer, size_t index);
/* Whether hvd reads or writes memory of a gradient, 1 or 0. Negative: as above. */
HVD_API int hvd_reducer_in_flight(hvd_reducer reducer);
HVD_API int hvd_reducer_synchronized(hvd_reducer reducer); /* 1 or 0. Negative: as above */
/* Rows of all ranks, of a sparse gradient; pointers and shapes are valid until the next step. */
HVD_API int hvd_reducer_reduced(hvd_reducer reducer, size_t index, hvd_tensor* indices,
                                hvd_tensor* values);
HVD_API int hvd_reducer_next_step(hvd_reducer reducer);
HVD_API int hvd_reducer_zero_gradients(hvd_reducer reducer);
HVD_API int hvd_reducer_rebind(hvd_reducer reducer, size_t index, void* data);
HVD_API int hvd_reducer_set_backward_passes_per_step(hvd_reducer reducer, int32_t passes);
HVD_API int hvd_reducer_reset(hvd_reducer reducer);

/* --- shards: the same bits at any number of workers (hvd/shards.h) -----------------------------
 */

/* The shards of a rank in a world of so many: `first` and those up to `last`, which is one behind.
 * Returns [usual]. */
HVD_API int hvd_shards_of(int32_t shards, int32_t rank, int32_t size, int32_t* first,
                          int32_t* last);
/* The numbers of a shard in a step, from the `first` one on, which is 0. Returns [usual]. */
HVD_API int hvd_shard_random(uint64_t seed, int32_t shard, uint64_t step, uint64_t first,
                             uint32_t* numbers, size_t count);

typedef struct hvd_shard_reducer_options {
  size_t size;
  const char* name; /* null: "shards" */
  int32_t shards;
  int32_t op; /* HVD_AVERAGE or HVD_SUM */
  int32_t process_set;
  int32_t reserved;
} hvd_shard_reducer_options;

#define HVD_SHARD_REDUCER_OPTIONS_INIT \
  { sizeof(hvd_shard_reducer_options), NULL, 0, HVD_AVERAGE, 0, 0 }
HVD_API int hvd_shard_reducer_options_init(hvd_shard_reducer_options* options, size_t size);

/* 0 is none. Each one is released once, and is for one thread at a time. */
typedef int64_t hvd_shard_reducer;

/* Those of which no more is said return HVD_OK or what the calls of hvd_reducer return. */
HVD_API int hvd_shard_reducer_create(const hvd_shard_reducer_options* options,
                                     hvd_shard_reducer* reducer);
/* HVD_OK, also of 0. Blocks while something is in flight. */
HVD_API int hvd_shard_reducer_release(hvd_shard_reducer reducer);
HVD_API int hvd_shard_reducer_add(hvd_shard_reducer reducer, const char* name,
                                  const hvd_tensor* gradient);
HVD_API int hvd_shard_reducer_rebind(hvd_shard_reducer reducer, size_t index, void* data);
/* The shards of this rank. Returns [usual], [set]. */
HVD_API int hvd_shard_reducer_own(hvd_shard_reducer reducer, int32_t* first, int32_t* last);
/* Begins a step that another world may repeat. The shards that this rank is to compute, ascending,
 * of which as many as there is room for go to `shards`, and how many they are: those of
 * hvd_shard_reducer_own(), unless ranks of this world have the sums of other shards of the step.
 * Where the world is another one than at the last step, or the step the same, a collective call.
 * Returns [usual], [set], [wait]. */
HVD_API int hvd_shard_reducer_begin(hvd_shard_reducer reducer, uint64_t step, int32_t* shards,
                                    size_t capacity, size_t* count);
/* Returns [usual], [set]. */
HVD_API int hvd_shard_reducer_ready(hvd_shard_reducer reducer, int32_t shard);
/* The same, with the samples from which the gradients were computed, for the ledger (hvdrun
 * --ledger); without a ledger they are not looked at. */
HVD_API int hvd_shard_reducer_ready_of(hvd_shard_reducer reducer, int32_t shard,
                                       const int64_t* samples, size_t count);
/* Blocks until all is reduced. Returns [usual], [set], [wait]. */
HVD_API int hvd_shard_reducer_synchronize(hvd_shard_reducer reducer);
/* The same, for at most so many milliseconds: HVD_ERROR_NOT_READY if something is in flight; it
 * goes on, and another call waits for the rest. Gradients are written by the last one alone. */
HVD_API int hvd_shard_reducer_synchronize_for(hvd_shard_reducer reducer, int64_t timeout_ms);
HVD_API int hvd_shard_reducer_in_flight(hvd_shard_reducer reducer); /* 1 or 0. Negative: as above */
/* Blocks while something is in flight. */
HVD_API int hvd_shard_reducer_reset(hvd_shard_reducer reducer);

/* --- elastic jobs, without collectives of hvd (with them: hvd/c_elastic.h)
 * ------------------------------------------------ */

/* For frameworks that have collectives of their own: they follow the world, and do not call
 * hvd_init().
 *
 *     hvd_follow();
 *     hvd_place place = HVD_PLACE_INIT;
 *     while (!done && hvd_follow_next(&place, -1) == HVD_OK) {
 *       start_framework(place.rank, place.ranks);
 *       train();   // until its collectives fail, or hvd_follow_ended(), or a commit as follows:
 *     }            //   rank 0 asks hvd_follow_proposed() and tells all; all have kept their state
 *     if (done) hvd_follow_done();       // and say hvd_follow_committed()
 */
typedef struct hvd_place {
  size_t size; /* of this struct */
  uint64_t generation;
  int32_t rank;
  int32_t ranks; /* so many are there */
  int32_t local_rank;
  int32_t local_size;
  int32_t cross_rank;
  int32_t cross_size;
} hvd_place;

#define HVD_PLACE_INIT \
  { sizeof(hvd_place), 0, 0, 0, 0, 0, 0, 0 }

/* First. Returns HVD_OK, HVD_ERROR_INIT (hvdrun has not started this process, or hvd_init() was
 * called). Again: nothing. */
HVD_API int hvd_follow(void);
/* Blocks until there is a world that is newer than the one that it gave last, and this worker is in
 * it; from a worker that is in no world yet, the call says that it is ready. `timeout_ms`: in
 * milliseconds; -1: as long as it takes.
 * Returns HVD_OK, HVD_ERROR_NOT_READY (not in time), HVD_ERROR_LEFT, HVD_ERROR_COLLECTIVE (the job
 * is being stopped), HVD_ERROR_NOT_INITIALIZED (no hvd_follow()), HVD_ERROR_INVALID_ARGUMENT. */
HVD_API int hvd_follow_next(hvd_place* place, int64_t timeout_ms);
/* 1: a newer world is in force than the one that hvd_follow_next() gave last. 0. Negative:
 * HVD_ERROR_NOT_INITIALIZED, as all that follow. */
HVD_API int hvd_follow_ended(void);
/* For rank 0, at a commit: 1 if the world is to change; 0. */
HVD_API int hvd_follow_proposed(uint64_t* generation);
/* By all members, also those that leave with it: they have left the world for this generation.
 * hvd_follow_next() comes next. These return HVD_OK, HVD_ERROR_INTERNAL. */
HVD_API int hvd_follow_committed(uint64_t generation);
HVD_API int hvd_follow_leave(void); /* this worker was told to go, and wants to at a commit */
HVD_API int hvd_follow_done(void);  /* the work is done: by all, before they end */

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif
