/* Memory that the ranks of a host share, from C: hvd/shared_memory.h says what it is good for.
 * hvd/c_api.h includes this. */
#pragma once

#include <stddef.h>

#include <hvd/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): names as C has them */

/* `bytes` of zeros, aligned to 64 bytes at least; before hvd_init() and after hvd_shutdown(), too.
 * Ordinary memory where the process may not map so much. Null: there is no memory left, which
 * hvd_last_error() says. */
HVD_API void* hvd_alloc(size_t bytes);
/* Frees memory from hvd_alloc(), once; it may be null. No work with it may be under way. */
HVD_API void hvd_free(void* memory);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif
