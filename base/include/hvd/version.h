/* The version of these headers, for C and C++. hvd::version() and hvd_version() return the version
 * of the library that the program runs with. Before 1.0 a new minor version may break programs that
 * were built with the one before. Its symbols then have another version: they do not start. */
#pragma once

#define HVD_VERSION_MAJOR 0
#define HVD_VERSION_MINOR 1
#define HVD_VERSION_PATCH 0

/* For comparisons: 10203 is version 1.2.3. */
#define HVD_VERSION (HVD_VERSION_MAJOR * 10000 + HVD_VERSION_MINOR * 100 + HVD_VERSION_PATCH)

#define HVD_VERSION_TEXT(number) #number
#define HVD_VERSION_JOIN(major, minor, patch) \
  HVD_VERSION_TEXT(major) "." HVD_VERSION_TEXT(minor) "." HVD_VERSION_TEXT(patch)
/* "1.2.3" */
#define HVD_VERSION_STRING HVD_VERSION_JOIN(HVD_VERSION_MAJOR, HVD_VERSION_MINOR, HVD_VERSION_PATCH)
