// Linked into programs that run worlds: under ThreadSanitizer they find their suppressions by
// themselves.
#if defined(__SANITIZE_THREAD__)
// The library of the sanitizer must see it.
// NOLINTNEXTLINE: its name is given
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() {
  return "suppressions=" HVD_SOURCE_DIR "/tests/tsan.supp";
}
#endif
