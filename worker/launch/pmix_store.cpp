#include "base/text.h"
#include "worker/launch/launcher_store.h"

#ifdef HVD_HAS_PMIX

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <optional>
#include <pmix.h>
#include <unistd.h>
#include <utility>

#include "base/security/crypto.h"

#endif

namespace hvd::worker {

bool has_pmix(const EnvironmentLookup& lookup) {
  return lookup("PMIX_RANK").has_value() && lookup("PMIX_NAMESPACE").has_value();
}

#ifdef HVD_HAS_PMIX
namespace {

// The name of the library since PMIx 2.
constexpr const char* kLibrary = "libpmix.so.2";

// The functions of PMIx that are used here, found by name.
class PmixLibrary {
 public:
  static Result<PmixLibrary> load(const std::string& name) {
    PmixLibrary library;
    // It stays: PMIx has threads of its own, and the program may use it, too, through MPI.
    void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) {
      const char* const why = ::dlerror();
      return Status(Code::failed_precondition, why == nullptr ? name : why);
    }
    const bool complete =
        find(handle, "PMIx_Init", library.init) &&
        find(handle, "PMIx_Finalize", library.finalize) && find(handle, "PMIx_Put", library.put) &&
        find(handle, "PMIx_Commit", library.commit) &&
        find(handle, "PMIx_Fence_nb", library.fence) && find(handle, "PMIx_Get", library.get) &&
        find(handle, "PMIx_Error_string", library.error_string);
    if (!complete) {
      return Status(Code::failed_precondition, cat(name, " lacks functions of PMIx"));
    }
    return library;
  }

  Status status(pmix_status_t code, std::string_view what) const {
    if (code == PMIX_SUCCESS) return {};
    return {Code::unavailable, cat("PMIx: ", what, ": ", error_string(code))};
  }

  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Fence_nb) fence = nullptr;
  decltype(&PMIx_Get) get = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;

 private:
  template <typename Function>
  static bool find(void* handle, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(handle, name));
    return function != nullptr;
  }
};

// The answer to a fence, which may come after its deadline, on a thread of PMIx.
struct FenceAnswer {
  std::mutex mutex;
  std::condition_variable came;
  std::optional<pmix_status_t> status;
  pmix_info_t collect{};  // of the question: bring what all have put
};

void on_fence(pmix_status_t status, void* data) {
  const std::unique_ptr<std::shared_ptr<FenceAnswer>> owner(
      static_cast<std::shared_ptr<FenceAnswer>*>(data));
  FenceAnswer& answer = **owner;
  const std::lock_guard lock(answer.mutex);
  answer.status = status;
  answer.came.notify_all();
}

class PmixStore final : public LauncherStore {
 public:
  explicit PmixStore(PmixLibrary library) : library_(library) {}
  ~PmixStore() override {
    // The end of a forked child is not that of this process.
    if (open_ && ::getpid() == owner_) library_.finalize(nullptr, 0);
  }

  Status open() {
    HVD_RETURN_IF_ERROR(library_.status(library_.init(&self_, nullptr, 0), "begin"));
    open_ = true;
    auto size = get(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
    HVD_RETURN_IF_ERROR(size.status());
    size_ = (*size)->type == PMIX_UINT32 ? static_cast<int>((*size)->data.uint32) : 0;
    if (size_ <= rank()) {
      return {Code::data_loss,
              cat("PMIx: the launcher says that this is rank ", rank(), " of ", size_)};
    }
    return {};
  }

  int rank() const override { return static_cast<int>(self_.rank); }
  int size() const override { return size_; }

  Result<std::vector<std::string>> gather(std::string_view value, TimePoint deadline) override {
    // A key is never used twice, also not by another store of this process.
    static std::atomic<int> gathers{0};
    const std::string key = cat("hvd.", ++gathers);
    HVD_RETURN_IF_ERROR(put(key, to_hex(value)));
    HVD_RETURN_IF_ERROR(fence(deadline));

    std::vector<std::string> values;
    for (int rank = 0; rank < size_; ++rank) {
      auto found = get(static_cast<pmix_rank_t>(rank), key);
      HVD_RETURN_IF_ERROR(found.status().with_context(cat("rank ", rank)));
      const bool is_text = (*found)->type == PMIX_STRING && (*found)->data.string != nullptr;
      auto bytes = from_hex(is_text ? (*found)->data.string : "?");
      HVD_RETURN_IF_ERROR(bytes.status().with_context(cat("PMIx: the value of rank ", rank)));
      values.push_back(std::move(*bytes));
    }
    return values;
  }

 private:
  struct ValueFreed {
    void operator()(pmix_value_t* value) const {
      if (value->type == PMIX_STRING) std::free(value->data.string);
      std::free(value);
    }
  };
  using Value = std::unique_ptr<pmix_value_t, ValueFreed>;

  Result<Value> get(pmix_rank_t rank, const std::string& key) const {
    pmix_proc_t of = self_;
    of.rank = rank;
    pmix_value_t* value = nullptr;
    const pmix_status_t got = library_.get(&of, key.c_str(), nullptr, 0, &value);
    HVD_RETURN_IF_ERROR(library_.status(got, cat("get ", key)));
    if (value == nullptr) return Status(Code::data_loss, cat("PMIx: get ", key, ": no value"));
    return Value(value);
  }

  Status put(const std::string& key, std::string text) const {
    pmix_value_t value{};
    value.type = PMIX_STRING;
    value.data.string = text.data();  // which is copied
    HVD_RETURN_IF_ERROR(
        library_.status(library_.put(PMIX_GLOBAL, key.c_str(), &value), cat("put ", key)));
    return library_.status(library_.commit(), "commit");
  }

  // Waits for all, and brings what all have put.
  Status fence(TimePoint deadline) const {
    const auto answer = std::make_shared<FenceAnswer>();
    std::strncpy(answer->collect.key, PMIX_COLLECT_DATA, PMIX_MAX_KEYLEN);
    answer->collect.value.type = PMIX_BOOL;
    answer->collect.value.data.flag = true;
    auto data = std::make_unique<std::shared_ptr<FenceAnswer>>(answer);
    const pmix_status_t begun =
        library_.fence(nullptr, 0, &answer->collect, 1, &on_fence, data.get());
    if (begun == PMIX_OPERATION_SUCCEEDED) return {};  // without a call
    HVD_RETURN_IF_ERROR(library_.status(begun, "wait for the other processes"));
    static_cast<void>(data.release());  // on_fence() owns it

    std::unique_lock lock(answer->mutex);
    const auto has_come = [&] { return answer->status.has_value(); };
    if (deadline == kNever) {
      answer->came.wait(lock, has_come);
    } else if (!answer->came.wait_until(lock, deadline, has_come)) {
      return not_all_came(size_);
    }
    return library_.status(*answer->status, "wait for the other processes");
  }

  const PmixLibrary library_;
  const pid_t owner_ = ::getpid();
  pmix_proc_t self_{};
  int size_ = 0;
  bool open_ = false;
};

}  // namespace

Result<std::unique_ptr<LauncherStore>> open_pmix_store(const EnvironmentLookup& lookup) {
  auto library = PmixLibrary::load(lookup("HVD_PMIX_LIBRARY").value_or(kLibrary));
  HVD_RETURN_IF_ERROR(library.status());
  auto store = std::make_unique<PmixStore>(*library);
  HVD_RETURN_IF_ERROR(store->open());
  return std::unique_ptr<LauncherStore>(std::move(store));
}

#else

Result<std::unique_ptr<LauncherStore>> open_pmix_store(const EnvironmentLookup& /*lookup*/) {
  return Status(Code::failed_precondition, "libhvd was built without PMIx (libpmix-dev)");
}

#endif

}  // namespace hvd::worker
