// What libhvd.so shows to the outside. Everything else in it is hidden.
#pragma once

#define HVD_API __attribute__((visibility("default")))
// A class inside one that is shown.
#define HVD_HIDDEN __attribute__((visibility("hidden")))
