// Linked into programs that run worlds: under ThreadSanitizer they find their suppressions by
// themselves.
#if defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_options();  // NOLINT: its name is given
extern "C" const char* __tsan_default_options() {
  return "suppressions=" HVD_SOURCE_DIR "/tests/tsan.supp";
}
#endif
