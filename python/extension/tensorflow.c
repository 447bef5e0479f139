/* Operations of TensorFlow, for CPUs, in functions that it compiles: a library that
 * tf.load_op_library() loads, over TensorFlow's C API for kernels. What stands here is the part of
 * it that is used, which is the same in all versions from 2.13; the functions are those of the
 * TensorFlow that loads the library.
 *
 * HvdStart begins an allreduce or a broadcast and returns; HvdWait blocks until those that were
 * started before it are done. HvdExchange does both, for results whose size only the ranks together
 * know. TensorFlow executes operations with a state in the order of the program, so that no thread
 * of it waits for a collective that another rank begins later. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hvd/c_api.h>

/* --- TensorFlow's C API --- */

/* NOLINTBEGIN(readability-identifier-naming): names as TensorFlow has them */

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;

enum {
  kOk = 0,
  kInvalidArgument = 3,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10
};
enum { kInt32 = 3, kInt64 = 9 };

TF_Status* TF_NewStatus(void);
void TF_DeleteStatus(TF_Status* status);
void TF_SetStatus(TF_Status* status, int code, const char* message);
int TF_GetCode(const TF_Status* status);

TF_OpDefinitionBuilder* TF_NewOpDefinitionBuilder(const char* name);
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder* builder, const char* text);
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder* builder, const char* text);
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder* builder, const char* text);
void TF_OpDefinitionBuilderSetIsStateful(TF_OpDefinitionBuilder* builder, bool is_stateful);
void TF_OpDefinitionBuilderSetShapeInferenceFunction(TF_OpDefinitionBuilder* builder,
                                                     void (*infer)(TF_ShapeInferenceContext*,
                                                                   TF_Status*));
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder* builder, TF_Status* status);
void TF_ShapeInferenceContextSetUnknownShape(TF_ShapeInferenceContext* context, TF_Status* status);

TF_KernelBuilder* TF_NewKernelBuilder(const char* operation, const char* device,
                                      void* (*create)(TF_OpKernelConstruction*),
                                      void (*compute)(void*, TF_OpKernelContext*),
                                      void (*destroy)(void*));
void TF_RegisterKernelBuilder(const char* name, TF_KernelBuilder* builder, TF_Status* status);
void TF_OpKernelConstruction_GetAttrString(TF_OpKernelConstruction* construction, const char* name,
                                           char* value, size_t capacity, TF_Status* status);
void TF_OpKernelConstruction_GetAttrInt32(TF_OpKernelConstruction* construction, const char* name,
                                          int32_t* value, TF_Status* status);
void TF_OpKernelConstruction_Failure(TF_OpKernelConstruction* construction, TF_Status* status);

int TF_NumInputs(TF_OpKernelContext* context);
int TF_NumOutputs(TF_OpKernelContext* context);
void TF_GetInput(TF_OpKernelContext* context, int index, TF_Tensor** tensor, TF_Status* status);
void TF_SetOutput(TF_OpKernelContext* context, int index, const TF_Tensor* tensor,
                  TF_Status* status);
TF_Tensor* TF_ForwardInputOrAllocateOutput(TF_OpKernelContext* context, const int* candidates,
                                           int candidate_count, int output, const int64_t* shape,
                                           int dimensions, int* forwarded, TF_Status* status);
TF_Tensor* TF_AllocateOutput(TF_OpKernelContext* context, int index, int type, const int64_t* shape,
                             int dimensions, size_t bytes, TF_Status* status);
void TF_OpKernelContext_Failure(TF_OpKernelContext* context, TF_Status* status);

TF_Tensor* TF_NewTensor(int type, const int64_t* shape, int dimensions, void* data, size_t bytes,
                        void (*release)(void* data, size_t bytes, void* argument), void* argument);
TF_Tensor* TF_AllocateTensor(int type, const int64_t* shape, int dimensions, size_t bytes);
int TF_TensorType(const TF_Tensor* tensor);
int TF_NumDims(const TF_Tensor* tensor);
int64_t TF_Dim(const TF_Tensor* tensor, int index);
size_t TF_DataTypeSize(int type);
size_t TF_TensorByteSize(const TF_Tensor* tensor);
void* TF_TensorData(const TF_Tensor* tensor);
void TF_DeleteTensor(TF_Tensor* tensor);

/* NOLINTEND(readability-identifier-naming) */

/* --- what an operation says --- */

enum { kMaxDimensions = 32, kMaxName = 512, kMaxNumber = 64 };
/* `enum kind` in work.c. */
enum { kAllreduce = 0, kBroadcast = 1, kAllgather = 2, kAlltoall = 3, kReducescatter = 4 };

#define TYPES "{bool, uint8, int8, uint16, int16, int32, int64, half, bfloat16, float, double}"

/* By TensorFlow's numbers of types; -1: hvd has no such type. */
static int type_of(int type) {
  static const struct {
    int theirs;
    int ours;
  } known[] = {{1, HVD_FLOAT32},   {2, HVD_FLOAT64}, {3, HVD_INT32},   {4, HVD_UINT8},
               {5, HVD_INT16},     {6, HVD_INT8},    {9, HVD_INT64},   {10, HVD_BOOL},
               {14, HVD_BFLOAT16}, {17, HVD_UINT16}, {19, HVD_FLOAT16}};
  for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i) {
    if (known[i].theirs == type) return known[i].ours;
  }
  return -1;
}

typedef struct kernel {
  int32_t kind;
  hvd_options options;
  char name[kMaxName];
} kernel;

static void read_number(TF_OpKernelConstruction* construction, const char* name, int32_t* into,
                        TF_Status* status) {
  if (TF_GetCode(status) != kOk) return;
  TF_OpKernelConstruction_GetAttrInt32(construction, name, into, status);
}

static void read_text(TF_OpKernelConstruction* construction, const char* name, char* into,
                      size_t capacity, TF_Status* status) {
  if (TF_GetCode(status) != kOk) return;
  TF_OpKernelConstruction_GetAttrString(construction, name, into, capacity - 1, status);
}

/* As a text, since numbers with a fraction have 32 bits among TensorFlow's attributes. */
static void read_factor(TF_OpKernelConstruction* construction, const char* name, double* into,
                        TF_Status* status) {
  char text[kMaxNumber] = "1";
  read_text(construction, name, text, sizeof(text), status);
  *into = strtod(text, NULL);
}

static void read_collective(TF_OpKernelConstruction* construction, kernel* into,
                            TF_Status* status) {
  hvd_options* const options = &into->options;
  read_number(construction, "reduce_op", &options->op, status);
  read_number(construction, "compression", &options->compression, status);
  read_number(construction, "root", &options->root, status);
  read_factor(construction, "prescale", &options->prescale, status);
  read_factor(construction, "postscale", &options->postscale, status);
  read_text(construction, "tensor_name", into->name, sizeof(into->name), status);
}

static kernel* create(TF_OpKernelConstruction* construction, bool is_collective) {
  TF_Status* const status = TF_NewStatus();
  kernel* const made = calloc(1, sizeof(kernel));
  if (made == NULL) {
    TF_SetStatus(status, kResourceExhausted, "out of memory");
  } else {
    const hvd_options options = HVD_OPTIONS_INIT;
    made->options = options;
    made->options.name = made->name;
    read_number(construction, "kind", &made->kind, status);
    read_number(construction, "process_set", &made->options.process_set, status);
    if (is_collective) read_collective(construction, made, status);
  }
  if (TF_GetCode(status) != kOk) TF_OpKernelConstruction_Failure(construction, status);
  TF_DeleteStatus(status);
  return made;
}

static void* create_collective(TF_OpKernelConstruction* construction) {
  return create(construction, true);
}

static void* create_place(TF_OpKernelConstruction* construction) {
  return create(construction, false);
}

static void destroy(void* made) { free(made); }

/* False: the status says why not. The shape is written to `shape`, which has to stay. */
static bool describe(const TF_Tensor* tensor, int64_t shape[kMaxDimensions], hvd_tensor* into,
                     TF_Status* status) {
  const int dimensions = TF_NumDims(tensor);
  const int type = type_of(TF_TensorType(tensor));
  if (type < 0 || dimensions > kMaxDimensions) {
    TF_SetStatus(status, kInvalidArgument,
                 type < 0 ? "hvd cannot send elements of this type"
                          : "hvd cannot send tensors of so many dimensions");
    return false;
  }
  for (int i = 0; i < dimensions; ++i) shape[i] = TF_Dim(tensor, i);
  const hvd_tensor described =
      HVD_TENSOR_OF(TF_TensorData(tensor), shape, dimensions, type, HVD_HOST);
  *into = described;
  return true;
}

/* As in Horovod: what a rank has got wrong by itself, and what only the ranks together can find. */
static int status_of(int code) {
  switch (code) {
    case HVD_ERROR_NOT_DYNAMIC:
    case HVD_ERROR_UNKNOWN_PROCESS_SET:
    case HVD_ERROR_NOT_A_MEMBER:
      return kInvalidArgument;
    case HVD_ERROR_INVALID_ARGUMENT:
      break;
    default:
      return kAborted;
  }
  const char* const text = hvd_last_error(); /* as hvd/errors.py tells them apart */
  const bool is_found_together =
      strncmp(text, "Mismatched ", 11) == 0 || strstr(text, ", has joined, and ") != NULL;
  return is_found_together ? kFailedPrecondition : kInvalidArgument;
}

/* hvd/tensorflow/kernels.py makes the exception of it. */
static void set_failure(TF_Status* status, int code) {
  char text[4096];
  snprintf(text, sizeof(text), "[hvd %d|%d|%s|%s] %s", code, hvd_last_error_rank(),
           hvd_last_error_host(), hvd_last_error_cause(), hvd_last_error());
  TF_SetStatus(status, status_of(code), text);
}

/* Ends a computation, and deletes its status. */
static void finish(TF_OpKernelContext* context, TF_Status* status) {
  if (TF_GetCode(status) != kOk) TF_OpKernelContext_Failure(context, status);
  TF_DeleteStatus(status);
}

/* --- HvdStart --- */

/* Work in flight. TensorFlow holds it as the memory of a tensor, the handle of HvdStart, and lets
 * it go after HvdWait, or where a function fails before. */
typedef struct started_work {
  int64_t address; /* the element of that tensor: where this struct lies, as no copy of it does */
  hvd_handle handle;
  int count;
  TF_Tensor** tensors; /* inputs, then outputs; null: it is the output, too */
} started_work;

enum { kAlignment = 64 };

static void delete_tensors(TF_Tensor** tensors, int count) {
  for (int i = 0; tensors != NULL && i < count; ++i) {
    if (tensors[i] != NULL) TF_DeleteTensor(tensors[i]);
  }
  free(tensors);
}

static void free_started(void* data, int code) {
  (void)code;
  started_work* const work = data;
  delete_tensors(work->tensors, 2 * work->count);
  free(work);
}

/* hvd may still read and write the memory of the tensors. */
static void release_started(void* data, size_t bytes, void* argument) {
  (void)bytes;
  (void)argument;
  started_work* const work = data;
  const hvd_handle handle = work->handle;
  if (handle == 0 || hvd_ready(handle) != 0) {
    free_started(work, HVD_OK);
  } else {
    hvd_on_done(handle, free_started, work);
  }
  hvd_release(handle);
}

/* The output is in the memory of the input, if nobody else needs that. */
static void take_tensors(TF_OpKernelContext* context, int index, started_work* work,
                         int64_t* shapes, hvd_tensor* inputs, hvd_tensor* outputs,
                         TF_Status* status) {
  TF_Tensor** const input = &work->tensors[index];
  TF_Tensor** const output = &work->tensors[work->count + index];
  TF_GetInput(context, index, input, status);
  if (TF_GetCode(status) != kOk || !describe(*input, shapes, &inputs[index], status)) return;
  TF_DeleteTensor(*input); /* it would be one who needs it */
  *input = NULL;
  int forwarded = -1;
  *output = TF_ForwardInputOrAllocateOutput(context, &index, 1, index + 1, shapes,
                                            inputs[index].dimensions, &forwarded, status);
  if (TF_GetCode(status) == kOk && forwarded < 0) TF_GetInput(context, index, input, status);
  if (TF_GetCode(status) != kOk || !describe(*output, shapes, &outputs[index], status)) return;
  inputs[index].data = TF_TensorData(*input == NULL ? *output : *input);
}

static int start(const kernel* own, const hvd_tensor* inputs, const hvd_tensor* outputs, int count,
                 hvd_handle* handle) {
  if (own->kind == kBroadcast) {
    return hvd_broadcast_async(inputs, outputs, &own->options, handle);
  }
  return count == 1
             ? hvd_allreduce_async(inputs, outputs, &own->options, handle)
             : hvd_grouped_allreduce_async(inputs, outputs, (size_t)count, &own->options, handle);
}

static void start_in(TF_OpKernelContext* context, const kernel* own, started_work* work,
                     TF_Status* status) {
  const int count = work->count;
  hvd_tensor* const tensors = calloc(2 * (size_t)count + 1, sizeof(hvd_tensor));
  int64_t(*const shapes)[kMaxDimensions] = calloc((size_t)count + 1, sizeof(*shapes));
  if (tensors == NULL || shapes == NULL) {
    TF_SetStatus(status, kResourceExhausted, "out of memory");
  }
  for (int i = 0; i < count && TF_GetCode(status) == kOk; ++i) {
    take_tensors(context, i, work, shapes[i], tensors, tensors + count, status);
  }
  if (TF_GetCode(status) == kOk) {
    const int code = start(own, tensors, tensors + count, count, &work->handle);
    if (code != HVD_OK) set_failure(status, code);
  }
  free(tensors);
  free(shapes);
}

static void compute_start(void* own, TF_OpKernelContext* context) {
  TF_Status* const status = TF_NewStatus();
  const int count = TF_NumInputs(context);
  started_work* const work =
      aligned_alloc(kAlignment, (sizeof(started_work) + kAlignment - 1) / kAlignment * kAlignment);
  TF_Tensor** const tensors = calloc(2 * (size_t)count + 1, sizeof(TF_Tensor*));
  if (work == NULL || tensors == NULL) {
    free(work);
    free(tensors);
    TF_SetStatus(status, kResourceExhausted, "out of memory");
    finish(context, status);
    return;
  }
  const started_work none = {(int64_t)(intptr_t)work, 0, count, tensors};
  *work = none;
  TF_Tensor* const held =
      TF_NewTensor(kInt64, NULL, 0, work, sizeof(int64_t), release_started, NULL);
  start_in(context, own, work, status);
  if (TF_GetCode(status) == kOk) TF_SetOutput(context, 0, held, status);
  TF_DeleteTensor(held);
  finish(context, status);
}

/* --- HvdWait --- */

static void wait_for_input(TF_OpKernelContext* context, int index, TF_Status* status,
                           TF_Status* failure) {
  TF_Tensor* tensor = NULL;
  TF_GetInput(context, index, &tensor, status);
  if (TF_GetCode(status) != kOk) return;
  const started_work* const work = TF_TensorData(tensor);
  if (work->address != (int64_t)(intptr_t)work) {
    TF_SetStatus(status, kInvalidArgument, "a handle of hvd has been copied");
  } else {
    const int code = hvd_wait(work->handle);
    if (code != HVD_OK && TF_GetCode(failure) == kOk) set_failure(failure, code);
  }
  TF_DeleteTensor(tensor);
}

static void compute_wait(void* own, TF_OpKernelContext* context) {
  (void)own;
  TF_Status* const status = TF_NewStatus();
  TF_Status* const failure = TF_NewStatus();
  const int results = TF_NumOutputs(context);
  const int handles = TF_NumInputs(context) - results;
  /* All of them, also after a failure: hvd is done with their memory then. */
  for (int i = 0; i < handles && TF_GetCode(status) == kOk; ++i) {
    wait_for_input(context, i, status, failure);
  }
  for (int i = 0; i < results && TF_GetCode(status) == kOk && TF_GetCode(failure) == kOk; ++i) {
    TF_Tensor* tensor = NULL;
    TF_GetInput(context, handles + i, &tensor, status);
    if (TF_GetCode(status) == kOk) TF_SetOutput(context, i, tensor, status);
    if (tensor != NULL) TF_DeleteTensor(tensor);
  }
  const bool has_failed = TF_GetCode(failure) != kOk;
  TF_DeleteStatus(has_failed ? status : failure);
  finish(context, has_failed ? failure : status);
}

/* --- HvdExchange --- */

typedef struct exchange {
  int count;
  TF_Tensor** tensors; /* inputs, then results */
} exchange;

static void* allocate_result(void* data, size_t index, const int64_t* shape, int32_t dimensions,
                             int32_t type) {
  (void)type;
  static char nothing;
  exchange* const own = data;
  const int their_type = TF_TensorType(own->tensors[index]);
  size_t bytes = TF_DataTypeSize(their_type);
  for (int32_t i = 0; i < dimensions; ++i) bytes *= (size_t)shape[i];
  TF_Tensor* const made = TF_AllocateTensor(their_type, shape, dimensions, bytes);
  own->tensors[own->count + (int)index] = made;
  if (made == NULL) return NULL;
  return bytes == 0 ? &nothing : TF_TensorData(made);
}

static int exchange_tensors(const kernel* own, const hvd_tensor* inputs, size_t count,
                            const hvd_options* options, hvd_handle* handle) {
  switch (own->kind) {
    case kAllgather:
      return hvd_grouped_allgather(inputs, count, options, handle);
    case kAlltoall:
      return hvd_alltoall(inputs, options, handle);
    default:
      return hvd_grouped_reducescatter(inputs, count, options, handle);
  }
}

/* The rows that came from each rank; none but of an alltoall. */
static void set_received(TF_OpKernelContext* context, int index, hvd_handle handle,
                         bool is_alltoall, TF_Status* status) {
  const int64_t* rows = NULL;
  size_t count = 0;
  if (is_alltoall) hvd_received_splits(handle, &rows, &count);
  const int64_t shape = (int64_t)count;
  TF_Tensor* const tensor =
      TF_AllocateOutput(context, index, kInt32, &shape, 1, count * sizeof(int32_t), status);
  if (TF_GetCode(status) == kOk) {
    for (size_t i = 0; i < count; ++i) ((int32_t*)TF_TensorData(tensor))[i] = (int32_t)rows[i];
  }
  if (tensor != NULL) TF_DeleteTensor(tensor);
}

static void exchange_in(TF_OpKernelContext* context, const kernel* own, exchange* work,
                        hvd_tensor* inputs, int64_t (*shapes)[kMaxDimensions], TF_Status* status) {
  for (int i = 0; i < work->count; ++i) {
    TF_GetInput(context, i, &work->tensors[i], status);
    if (TF_GetCode(status) != kOk || !describe(work->tensors[i], shapes[i], &inputs[i], status)) {
      return;
    }
  }
  TF_Tensor* splits = NULL;
  TF_GetInput(context, work->count, &splits, status);
  if (TF_GetCode(status) != kOk) return;
  hvd_options options = own->options;
  options.allocate = allocate_result;
  options.allocate_data = work;
  options.split_count = TF_TensorByteSize(splits) / sizeof(int64_t);
  options.splits = options.split_count == 0 ? NULL : TF_TensorData(splits);
  hvd_handle handle = 0;
  const int code = exchange_tensors(own, inputs, (size_t)work->count, &options, &handle);
  TF_DeleteTensor(splits);
  if (code != HVD_OK) {
    set_failure(status, code);
    return;
  }
  for (int i = 0; i < work->count && TF_GetCode(status) == kOk; ++i) {
    TF_SetOutput(context, i, work->tensors[work->count + i], status);
  }
  if (TF_GetCode(status) == kOk) {
    set_received(context, work->count, handle, own->kind == kAlltoall, status);
  }
  hvd_release(handle);
}

static void compute_exchange(void* own, TF_OpKernelContext* context) {
  TF_Status* const status = TF_NewStatus();
  const size_t count = (size_t)TF_NumInputs(context) - 1;
  exchange work = {(int)count, calloc(2 * count + 1, sizeof(TF_Tensor*))};
  hvd_tensor* const inputs = calloc(count + 1, sizeof(hvd_tensor));
  int64_t(*const shapes)[kMaxDimensions] = calloc(count + 1, sizeof(*shapes));
  if (work.tensors == NULL || inputs == NULL || shapes == NULL) {
    TF_SetStatus(status, kResourceExhausted, "out of memory");
  } else {
    exchange_in(context, own, &work, inputs, shapes, status);
  }
  delete_tensors(work.tensors, 2 * work.count);
  free(inputs);
  free(shapes);
  finish(context, status);
}

/* --- HvdPlace: a number of the world that is there when it is executed --- */

static int number_of(const kernel* own) {
  const int32_t set = own->options.process_set;
  switch (own->kind) {
    case 0:
      return hvd_process_set_size(set);
    case 1:
      return hvd_process_set_rank(set);
    case 2:
      return hvd_process_set_included(set);
    case 3:
      return hvd_rank();
    case 4:
      return hvd_local_size();
    default:
      return hvd_local_rank();
  }
}

static void compute_place(void* own, TF_OpKernelContext* context) {
  TF_Status* const status = TF_NewStatus();
  const int number = number_of(own);
  if (number < 0) {
    set_failure(status, number);
  } else {
    TF_Tensor* const output =
        TF_AllocateOutput(context, 0, kInt32, NULL, 0, sizeof(int32_t), status);
    if (TF_GetCode(status) == kOk) *(int32_t*)TF_TensorData(output) = number;
    if (output != NULL) TF_DeleteTensor(output);
  }
  finish(context, status);
}

/* --- the library --- */

/* hvd/tensorflow/kernels.py says what shapes the results have, where that is known. */
static void infer_nothing(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

static TF_OpDefinitionBuilder* define(const char* name) {
  TF_OpDefinitionBuilder* const definition = TF_NewOpDefinitionBuilder(name);
  TF_OpDefinitionBuilderSetIsStateful(definition, true);
  TF_OpDefinitionBuilderSetShapeInferenceFunction(definition, infer_nothing);
  return definition;
}

static TF_OpDefinitionBuilder* define_collective(const char* name) {
  TF_OpDefinitionBuilder* const definition = define(name);
  TF_OpDefinitionBuilderAddAttr(definition, "T: list(" TYPES ")");
  static const char* const attributes[] = {
      "kind: int",     "tensor_name: string",  "reduce_op: int = 0",     "compression: int = 0",
      "root: int = 0", "process_set: int = 0", "prescale: string = '1'", "postscale: string = '1'"};
  for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); ++i) {
    TF_OpDefinitionBuilderAddAttr(definition, attributes[i]);
  }
  TF_OpDefinitionBuilderAddInput(definition, "tensors: T");
  return definition;
}

static void add_operation(TF_OpDefinitionBuilder* definition, const char* name,
                          void* (*make)(TF_OpKernelConstruction*),
                          void (*compute)(void*, TF_OpKernelContext*)) {
  TF_Status* const status = TF_NewStatus();
  TF_RegisterOpDefinition(definition, status);
  TF_RegisterKernelBuilder(name, TF_NewKernelBuilder(name, "CPU", make, compute, destroy), status);
  TF_DeleteStatus(status);
}

__attribute__((constructor)) static void register_operations(void) {
  TF_OpDefinitionBuilder* definition = define_collective("HvdStart");
  TF_OpDefinitionBuilderAddOutput(definition, "handle: int64");
  TF_OpDefinitionBuilderAddOutput(definition, "results: T");
  add_operation(definition, "HvdStart", create_collective, compute_start);

  definition = define("HvdWait");
  TF_OpDefinitionBuilderAddAttr(definition, "T: list(" TYPES ") >= 0");
  TF_OpDefinitionBuilderAddAttr(definition, "N: int >= 1");
  TF_OpDefinitionBuilderAddInput(definition, "handles: N * int64");
  TF_OpDefinitionBuilderAddInput(definition, "tensors: T");
  TF_OpDefinitionBuilderAddOutput(definition, "results: T");
  add_operation(definition, "HvdWait", NULL, compute_wait);

  definition = define_collective("HvdExchange");
  TF_OpDefinitionBuilderAddInput(definition, "splits: int64");
  TF_OpDefinitionBuilderAddOutput(definition, "results: T");
  TF_OpDefinitionBuilderAddOutput(definition, "received: int32");
  add_operation(definition, "HvdExchange", create_collective, compute_exchange);

  definition = define("HvdPlace");
  TF_OpDefinitionBuilderAddAttr(definition, "kind: int");
  TF_OpDefinitionBuilderAddAttr(definition, "process_set: int = 0");
  TF_OpDefinitionBuilderAddOutput(definition, "number: int32");
  add_operation(definition, "HvdPlace", create_place, compute_place);
}
