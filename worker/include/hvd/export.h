// The symbols that libhvd.so exports. Everything else in it is hidden.
#pragma once

#define HVD_API __attribute__((visibility("default")))
// For a class nested in an exported one, which would otherwise be exported with it.
#define HVD_HIDDEN __attribute__((visibility("hidden")))
