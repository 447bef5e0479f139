// Linked into programs that run worlds, so that they find their suppressions under ThreadSanitizer.
#if defined(__SANITIZE_THREAD__)
// The sanitizer's library looks this function up by name.
// NOLINTNEXTLINE: the sanitizer determines the name
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() {
  return "suppressions=" HVD_SOURCE_DIR "/tests/tsan.supp";
}
#endif
