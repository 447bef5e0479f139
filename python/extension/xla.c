/* Allreduce in programs that XLA compiles for CPUs: a handler of its foreign function interface
 * (FFI), for hvd.jax. The interface is a C ABI. What stands here is the part of its version 0.1
 * that the handler uses, which later versions serve too; each struct begins with its size, and then
 * has a list of extensions.
 *
 * XLA calls the handler on threads of its own, without the GIL, and goes on with what does not need
 * the results. A thread of hvd tells it when they are there. */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extension.h"

/* --- the interface --- */

enum { kVersionMajor = 0, kVersionMinor = 1 };
enum { kExtensionMetadata = 1 };
enum { kAttributeScalar = 3, kAttributeString = 4 };
enum { kErrorInvalidArgument = 3, kErrorResourceExhausted = 8, kErrorAborted = 10 };

typedef struct xla_extension {
  size_t size;
  int type;
  struct xla_extension* next;
} xla_extension;

typedef struct xla_version {
  size_t size;
  xla_extension* extensions;
  int major;
  int minor;
} xla_version;

typedef struct xla_metadata {
  size_t size;
  xla_version version;
  uint32_t traits;
} xla_metadata;

typedef struct xla_metadata_extension {
  xla_extension base;
  xla_metadata* metadata;
} xla_metadata_extension;

typedef struct xla_buffer {
  size_t size;
  xla_extension* extensions;
  int type;
  void* data;
  int64_t dimensions;
  int64_t* shape;
} xla_buffer;

typedef struct xla_buffers {
  size_t size;
  xla_extension* extensions;
  int64_t count;
  int* kinds;
  xla_buffer** buffers;
} xla_buffers;

typedef struct xla_bytes {
  const char* begin;
  size_t size;
} xla_bytes;

typedef struct xla_scalar {
  int type;
  void* value;
} xla_scalar;

typedef struct xla_attributes {
  size_t size;
  xla_extension* extensions;
  int64_t count;
  int* kinds;
  xla_bytes** names;
  void** values;
} xla_attributes;

typedef struct xla_error xla_error;
typedef struct xla_future xla_future;

typedef struct xla_error_arguments {
  size_t size;
  xla_extension* extensions;
  const char* message;
  int code;
} xla_error_arguments;

/* Of the three functions on a future; the first one fills it in, the last one reads the error. */
typedef struct xla_future_arguments {
  size_t size;
  xla_extension* extensions;
  xla_future* future;
  xla_error* error;
} xla_future_arguments;

typedef xla_error* (*xla_make_error)(xla_error_arguments* arguments);
typedef xla_error* (*xla_future_function)(xla_future_arguments* arguments);

typedef struct xla_api {
  size_t size;
  xla_extension* extensions;
  xla_version version;
  void* internal;
  xla_make_error make_error;
  void* unused[12];
  xla_future_function make_future;
  xla_future_function set_available;
  xla_future_function set_error;
} xla_api;

typedef struct xla_call {
  size_t size;
  xla_extension* extensions;
  const xla_api* api;
  void* context;
  int stage;
  xla_buffers arguments;
  xla_buffers results;
  xla_attributes attributes;
  xla_future* future;
} xla_call;

/* By XLA's numbers of types; -1: hvd has no such type. */
static const int kTypes[] = {-1,          HVD_BOOL,   HVD_INT8, HVD_INT16, HVD_INT32,   HVD_INT64,
                             HVD_UINT8,   HVD_UINT16, -1,       -1,        HVD_FLOAT16, HVD_FLOAT32,
                             HVD_FLOAT64, -1,         -1,       -1,        HVD_BFLOAT16};
enum { kTypeCount = sizeof(kTypes) / sizeof(kTypes[0]) };

static xla_error* make_error(const xla_api* api, int code, const char* message) {
  xla_error_arguments arguments = {sizeof(arguments), NULL, message, code};
  return api->make_error(&arguments);
}

/* --- names --- */

/* Executions of a program may overlap, and a name of hvd is in flight once. XLA begins those of one
 * program in the order in which they were asked for, which is the same on all ranks, so they are
 * numbered. The numbers come again, since hvd remembers what was agreed under a name. */
enum { kExecutionsAtOnce = 16, kMaxName = 512 };

typedef struct execution_count {
  struct execution_count* next;
  unsigned count;
  char name[kMaxName];
} execution_count;

static pthread_mutex_t counts_mutex = PTHREAD_MUTEX_INITIALIZER;
static execution_count* counts;    /* under the mutex */
static uint64_t counts_generation; /* of the world whose executions they count */

static void forget_counts(void) {
  while (counts != NULL) {
    execution_count* const next = counts->next;
    free(counts);
    counts = next;
  }
}

/* 0, or -1 without memory. */
static int number_execution(const xla_bytes* name, char into[kMaxName + 16]) {
  char text[kMaxName];
  snprintf(text, sizeof(text), "%.*s", (int)(name->size < kMaxName ? name->size : kMaxName),
           name->begin);
  uint64_t generation = 0;
  hvd_generation(&generation);
  pthread_mutex_lock(&counts_mutex);
  if (generation != counts_generation) forget_counts();
  counts_generation = generation;

  execution_count* found = counts;
  while (found != NULL && strcmp(found->name, text) != 0) found = found->next;
  if (found == NULL && (found = calloc(1, sizeof(*found))) != NULL) {
    memcpy(found->name, text, sizeof(text));
    found->next = counts;
    counts = found;
  }
  const int is_there = found != NULL;
  if (is_there) {
    snprintf(into, kMaxName + 16, "%s.%u", text, found->count++ % kExecutionsAtOnce);
  }
  pthread_mutex_unlock(&counts_mutex);
  return is_there ? 0 : -1;
}

/* --- failures: XLA raises an exception of its own with their text --- */

static _Atomic(failure_text*) last_failure;

static void note_failure(int code) {
  free_failure(atomic_exchange(&last_failure, take_failure(code)));
}

static PyObject* raise_xla_failure(PyObject* module, PyObject* none) {
  (void)module;
  (void)none;
  failure_text* const failure = atomic_exchange(&last_failure, NULL);
  if (failure == NULL) Py_RETURN_NONE;
  raise_failure(failure, failure->code);
  free_failure(failure);
  return NULL;
}

/* --- the handler --- */

typedef struct started_call {
  const xla_api* api;
  xla_future* future;
} started_call;

static void tell_xla(void* data, int code) {
  started_call* const own = data;
  xla_future_arguments arguments = {sizeof(arguments), NULL, own->future, NULL};
  if (code == HVD_OK) {
    arguments.size = offsetof(xla_future_arguments, error);
    own->api->set_available(&arguments);
  } else {
    note_failure(code);
    arguments.error = make_error(own->api, kErrorAborted, hvd_last_error());
    own->api->set_error(&arguments);
  }
  free(own);
}

/* Writes what an attribute of the call says into the place for it. */
static void read_attribute(const xla_bytes* name, int kind, const void* value, hvd_options* options,
                           xla_bytes* call_name) {
  struct {
    const char* name;
    void* into;
    size_t size;
  } const known[] = {
      {"op", &options->op, sizeof(options->op)},
      {"compression", &options->compression, sizeof(options->compression)},
      {"process_set", &options->process_set, sizeof(options->process_set)},
      {"prescale", &options->prescale, sizeof(options->prescale)},
      {"postscale", &options->postscale, sizeof(options->postscale)},
  };
  if (kind == kAttributeString) {
    *call_name = *(const xla_bytes*)value;
    return;
  }
  for (size_t i = 0; kind == kAttributeScalar && i < sizeof(known) / sizeof(known[0]); ++i) {
    if (strlen(known[i].name) == name->size &&
        memcmp(known[i].name, name->begin, name->size) == 0) {
      memcpy(known[i].into, ((const xla_scalar*)value)->value, known[i].size);
    }
  }
}

/* 0, or -1: a type that hvd lacks. */
static int read_buffers(const xla_buffers* from, hvd_tensor* into) {
  for (int64_t i = 0; i < from->count; ++i) {
    const xla_buffer* const buffer = from->buffers[i];
    const int type = buffer->type < 0 || buffer->type >= kTypeCount ? -1 : kTypes[buffer->type];
    if (type < 0) return -1;
    const hvd_tensor tensor =
        HVD_TENSOR_OF(buffer->data, buffer->shape, (int32_t)buffer->dimensions, type, HVD_HOST);
    into[i] = tensor;
  }
  return 0;
}

static xla_error* start_allreduce(xla_call* call, hvd_tensor* inputs, hvd_tensor* outputs,
                                  started_call* started) {
  const xla_api* const api = call->api;
  hvd_options options = HVD_OPTIONS_INIT;
  xla_bytes call_name = {"", 0};
  for (int64_t i = 0; i < call->attributes.count; ++i) {
    read_attribute(call->attributes.names[i], call->attributes.kinds[i], call->attributes.values[i],
                   &options, &call_name);
  }
  if (read_buffers(&call->arguments, inputs) != 0 || read_buffers(&call->results, outputs) != 0) {
    return make_error(api, kErrorInvalidArgument, "hvd cannot send elements of this type");
  }
  char name[kMaxName + 16];
  if (number_execution(&call_name, name) != 0) {
    return make_error(api, kErrorResourceExhausted, "out of memory");
  }
  options.name = name;
  hvd_handle handle = 0;
  const int code = hvd_grouped_allreduce_async(inputs, outputs, (size_t)call->arguments.count,
                                               &options, &handle);
  if (code != HVD_OK) {
    note_failure(code);
    return make_error(api, kErrorAborted, hvd_last_error());
  }

  xla_future_arguments future = {offsetof(xla_future_arguments, error), NULL, NULL, NULL};
  xla_error* const error = api->make_future(&future);
  if (error != NULL) {
    hvd_wait(handle); /* it reads and writes the memory of the call */
    hvd_release(handle);
    return error;
  }
  started->api = api;
  started->future = future.future;
  call->future = future.future;
  hvd_on_done(handle, tell_xla, started);
  hvd_release(handle);
  return NULL;
}

static xla_error* allreduce_handler(xla_call* call) {
  if (call->extensions != NULL && call->extensions->type == kExtensionMetadata) {
    xla_metadata* const metadata = ((xla_metadata_extension*)call->extensions)->metadata;
    metadata->version.major = kVersionMajor;
    metadata->version.minor = kVersionMinor;
    metadata->traits = 0;
    return NULL;
  }
  const size_t count = (size_t)call->arguments.count + 1;
  hvd_tensor* const inputs = calloc(2 * count, sizeof(hvd_tensor));
  started_call* const started = calloc(1, sizeof(started_call));
  xla_error* error = NULL;
  if (inputs == NULL || started == NULL) {
    error = make_error(call->api, kErrorResourceExhausted, "out of memory");
  } else {
    error = start_allreduce(call, inputs, inputs + count, started);
  }
  free(inputs);
  if (error != NULL) free(started);
  return error;
}

static PyObject* xla_allreduce(PyObject* module, PyObject* none) {
  (void)module;
  (void)none;
  union {
    xla_error* (*function)(xla_call* call);
    void* address;
  } handler = {allreduce_handler};
  return PyCapsule_New(handler.address, "xla._CUSTOM_CALL_TARGET", NULL);
}

static PyMethodDef functions[] = {
    {"xla_allreduce", xla_allreduce, METH_NOARGS, "The handler, for XLA."},
    {"raise_xla_failure", raise_xla_failure, METH_NOARGS,
     "Raises the last failure of a call from XLA that was not raised yet; None: there is none."},
    {NULL, NULL, 0, NULL},
};

int add_xla(PyObject* module) { return PyModule_AddFunctions(module, functions); }
