#include "base/security/munge.h"

#include "base/text.h"

#ifdef HVD_HAS_MUNGE

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <munge.h>
#include <unistd.h>

#endif

namespace hvd {
namespace {

// "munge SOCKET CREDENTIAL" with commas for blanks; the socket may be empty.
constexpr std::string_view kMark = "munge,";

}  // namespace

bool is_sealed_with_munge(std::string_view text) { return text.starts_with(kMark); }

#ifdef HVD_HAS_MUNGE
namespace {

constexpr const char* kLibrary = "libmunge.so.2";

// The functions of MUNGE that are used here, found by name.
struct Munge {
  decltype(&munge_encode) encode = nullptr;
  decltype(&munge_decode) decode = nullptr;
  decltype(&munge_ctx_create) create_context = nullptr;
  decltype(&munge_ctx_destroy) destroy_context = nullptr;
  decltype(&munge_ctx_set) set = nullptr;
  decltype(&munge_ctx_strerror) context_error = nullptr;
  decltype(&munge_strerror) error = nullptr;

  template <typename Function>
  static bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    return function != nullptr;
  }

  static Result<Munge> load() {
    void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
      const char* const why = ::dlerror();
      return Status(Code::failed_precondition,
                    cat("load MUNGE's library: ", why == nullptr ? kLibrary : why));
    }
    Munge munge;
    const bool complete = find(library, "munge_encode", munge.encode) &&
                          find(library, "munge_decode", munge.decode) &&
                          find(library, "munge_ctx_create", munge.create_context) &&
                          find(library, "munge_ctx_destroy", munge.destroy_context) &&
                          find(library, "munge_ctx_set", munge.set) &&
                          find(library, "munge_ctx_strerror", munge.context_error) &&
                          find(library, "munge_strerror", munge.error);
    if (complete) return munge;
    return Status(Code::failed_precondition, cat(kLibrary, " lacks functions of MUNGE"));
  }

  using Context = std::unique_ptr<munge_ctx, decltype(&munge_ctx_destroy)>;

  Result<Context> context(const std::string& socket) const {
    Context made(create_context(), destroy_context);
    if (!made) return Status(Code::resource_exhausted, "MUNGE: out of memory");
    if (!socket.empty() && set(made.get(), MUNGE_OPT_SOCKET, socket.c_str()) != EMUNGE_SUCCESS) {
      return Status(Code::invalid_argument,
                    cat("MUNGE's socket ", socket, ": ", context_error(made.get())));
    }
    return made;
  }

  Status failure(std::string_view what, munge_err_t code, const Context& about) const {
    const char* const detail = context_error(about.get());
    return {Code::unavailable, cat(what, ": ", detail == nullptr ? error(code) : detail)};
  }
};

// A secret in memory that the library has allocated.
void wipe_and_free(void* memory, int size) {
  if (memory == nullptr) return;
  if (size > 0) wipe(memory, static_cast<std::size_t>(size));
  std::free(memory);  // NOLINT: the library has allocated it
}

}  // namespace

Result<std::string> seal_with_munge(std::string_view secret, const std::string& socket) {
  const auto munge = Munge::load();
  if (!munge.ok()) return munge.status();
  const auto context = munge->context(socket);
  if (!context.ok()) return context.status();

  // Nobody but this user, on any node, gets the secret out of it.
  munge_err_t code = munge->set(context->get(), MUNGE_OPT_UID_RESTRICTION, ::geteuid());
  char* credential = nullptr;
  if (code == EMUNGE_SUCCESS) {
    code =
        munge->encode(&credential, context->get(), secret.data(), static_cast<int>(secret.size()));
  }
  if (code != EMUNGE_SUCCESS) return munge->failure("seal a secret with MUNGE", code, *context);
  std::string text = cat(kMark, socket, ",", credential);
  std::free(credential);  // NOLINT: the library has allocated it
  return text;
}

Result<std::string> open_sealed_with_munge(std::string_view text) {
  if (!is_sealed_with_munge(text)) return Status(Code::invalid_argument, "not sealed with MUNGE");
  text.remove_prefix(kMark.size());
  const auto comma = text.rfind(',');
  if (comma == std::string_view::npos) {
    return Status(Code::data_loss, "a secret that is sealed with MUNGE is incomplete");
  }

  const auto munge = Munge::load();
  if (!munge.ok()) return munge.status();
  const auto context = munge->context(std::string(text.substr(0, comma)));
  if (!context.ok()) return context.status();

  void* secret = nullptr;
  int size = 0;
  uid_t sealed_by = 0;
  const std::string credential(text.substr(comma + 1));
  const munge_err_t code =
      munge->decode(credential.c_str(), context->get(), &secret, &size, &sealed_by, nullptr);
  std::string opened;
  if (code == EMUNGE_SUCCESS) {
    opened.assign(static_cast<const char*>(secret), static_cast<std::size_t>(size));
  }
  wipe_and_free(secret, size);
  if (code != EMUNGE_SUCCESS) {
    return munge->failure("open a secret that is sealed with MUNGE", code, *context);
  }
  if (sealed_by != ::geteuid() && sealed_by != 0) {
    return Status(Code::permission_denied,
                  cat("user ", sealed_by, " has sealed this secret, neither this user (",
                      ::geteuid(), ") nor root"));
  }
  return opened;
}

#else

Result<std::string> seal_with_munge(std::string_view /*secret*/, const std::string& /*socket*/) {
  return Status(Code::failed_precondition, "hvd was built without MUNGE (libmunge-dev)");
}

Result<std::string> open_sealed_with_munge(std::string_view /*text*/) {
  return Status(Code::failed_precondition, "hvd was built without MUNGE (libmunge-dev)");
}

#endif

}  // namespace hvd
