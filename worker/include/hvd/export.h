// What libhvd.so shows to the outside. Everything else in it is hidden.
#pragma once

#define HVD_API __attribute__((visibility("default")))
