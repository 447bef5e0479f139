// Elastic state, run() and the sampler for C.
#include <algorithm>
#include <string>

#include <hvd/elastic.h>
#include <hvd/sampler.h>

#include "worker/c_api/c_api.h"
#include "worker/elastic/run.h"
#include "worker/elastic/state_impl.h"

using namespace hvd::c_api;  // NOLINT(google-build-using-namespace): the calls below are of C

namespace {

using hvd::elastic::State;

Registry<hvd::Sampler>& samplers() {
  static auto& only = *new Registry<hvd::Sampler>("sampler");  // callers may use it at the very end
  return only;
}

using hvd::elastic::detail::Run;
using hvd::elastic::detail::Turn;

// A state, and its run while hvd_elastic_next() leads one.
struct OwnState : State {
  using State::State;
  std::unique_ptr<Run> run;
};

Registry<OwnState>& states() {
  static auto& only = *new Registry<OwnState>("state");
  return only;
}

// `call` with the state of this number; HVD_OK if it returns.
template <typename Call>
int with_state(hvd_state state, Call call) {
  return guard([&] {
    call(*states().find(state));
    return HVD_OK;
  });
}

hvd::elastic::StateOptions read_state_options(const hvd_state_options* given) {
  constexpr const char* kCall = "hvd_state_create";
  const auto read = read_options<hvd_state_options>(given, HVD_STATE_OPTIONS_INIT,
                                                    sizeof(hvd_state_options), kCall);
  if (read.mode != HVD_COMMIT_COPY && read.mode != HVD_COMMIT_MARK) {
    refuse(kCall, "(): options.mode ", read.mode, " is not a value of hvd_commit_mode");
  }

  hvd::elastic::StateOptions options;
  options.mode = read.mode == HVD_COMMIT_MARK ? hvd::elastic::CommitMode::mark
                                              : hvd::elastic::CommitMode::copy;
  options.compare_every = read.compare_every;
  options.cuda_stream = read.cuda_stream;
  if (read.loader != nullptr) {
    options.loader = [loader = read.loader, data = read.loader_data] {
      run_callback("the loader", [&] { return loader(data); });
    };
  }
  return options;
}

// The failure that a code of the program's function stands for, by which a run decides how it goes
// on: the original one if this thread has seen it.
std::exception_ptr failure_of(int code) {
  constexpr const char* kFunction = "the program's function";
  try {
    check_callback(code, kFunction);
    return nullptr;
  } catch (const CallbackError& error) {
    switch (code) {
      case HVD_ERROR_HOSTS_UPDATED:
        return std::make_exception_ptr(hvd::HostsUpdated(error.what()));
      case HVD_ERROR_COLLECTIVE:
        return std::make_exception_ptr(hvd::CollectiveError(error.what(), -1, "", ""));
      case HVD_ERROR_NOT_INITIALIZED:
        return std::make_exception_ptr(hvd::NotInitializedError(error.what()));
      case HVD_ERROR_NOT_DYNAMIC:
      case HVD_ERROR_UNKNOWN_PROCESS_SET:
      case HVD_ERROR_NOT_A_MEMBER:
      case HVD_ERROR_SHUT_DOWN:
      case HVD_ERROR_LOST_MEMBER:
      case HVD_ERROR_DUPLICATE_PROCESS_SET:
        return std::make_exception_ptr(
            hvd::ProcessSetError(static_cast<hvd::ProcessSetErrorCode>(code), error.what()));
      default:
        return std::current_exception();
    }
  } catch (const std::exception&) {
    return std::current_exception();
  }
}

// Owns a program's handler.
class OwnedHandler {
 public:
  explicit OwnedHandler(const hvd_state_handler& handler) : handler_(handler) {}
  ~OwnedHandler() {
    if (handler_.release != nullptr) handler_.release(handler_.data);
  }
  OwnedHandler(const OwnedHandler&) = delete;
  OwnedHandler& operator=(const OwnedHandler&) = delete;

  std::size_t bytes() const {
    std::size_t bytes = 0;
    run_callback("`bytes` of a handler", [&] { return handler_.bytes(handler_.data, &bytes); });
    return bytes;
  }
  void save(std::span<std::byte> into) const {
    run_callback("`save` of a handler",
                 [&] { return handler_.save(handler_.data, into.data(), into.size()); });
  }
  void load(std::span<const std::byte> from) const {
    run_callback("`load` of a handler",
                 [&] { return handler_.load(handler_.data, from.data(), from.size()); });
  }

 private:
  hvd_state_handler handler_;
};

}  // namespace

int hvd_generation(uint64_t* generation) {
  return guard([&] {
    not_null(generation, "hvd_generation", "generation") = hvd::elastic::generation();
    return HVD_OK;
  });
}

int hvd_sampler_create(int64_t size, int32_t shuffle, uint64_t seed, hvd_sampler* sampler) {
  return guard([&] {
    auto& into = not_null(sampler, "hvd_sampler_create", "sampler");
    into = 0;
    const hvd::SamplerOptions options{.size = size, .shuffle = shuffle != 0, .seed = seed};
    into = samplers().add(std::make_shared<hvd::Sampler>(options));
    return HVD_OK;
  });
}

int hvd_sampler_release(hvd_sampler sampler) {
  return guard([&] {
    if (sampler != 0) samplers().remove(sampler);
    return HVD_OK;
  });
}

int64_t hvd_sampler_next(hvd_sampler sampler, int64_t batch, int64_t* indices) {
  return guard<int64_t>([&]() -> int64_t {
    auto& own = *samplers().find(sampler);
    auto& into = not_null(indices, "hvd_sampler_next", "indices");
    const auto next = own.next(batch);
    std::copy(next.begin(), next.end(), &into);
    return static_cast<int64_t>(next.size());
  });
}

int hvd_sampler_set_epoch(hvd_sampler sampler, int64_t epoch) {
  return guard([&] {
    samplers().find(sampler)->set_epoch(epoch);
    return HVD_OK;
  });
}

int64_t hvd_sampler_epoch(hvd_sampler sampler) {
  return guard<int64_t>([&] { return samplers().find(sampler)->epoch(); });
}

int64_t hvd_sampler_processed(hvd_sampler sampler) {
  return guard<int64_t>([&] { return samplers().find(sampler)->processed(); });
}

int64_t hvd_sampler_remaining(hvd_sampler sampler) {
  return guard<int64_t>([&] { return samplers().find(sampler)->remaining(); });
}

int hvd_state_options_init(hvd_state_options* options, size_t size) {
  return write_defaults(options, size, HVD_STATE_OPTIONS_INIT, sizeof(hvd_state_options),
                        "hvd_state_options_init");
}

int hvd_state_create(const hvd_state_options* options, hvd_state* state) {
  return guard([&] {
    auto& into = not_null(state, "hvd_state_create", "state");
    into = 0;
    into = states().add(std::make_shared<OwnState>(read_state_options(options)));
    return HVD_OK;
  });
}

int hvd_state_release(hvd_state state) {
  return guard([&] {
    if (state != 0) states().remove(state);
    return HVD_OK;
  });
}

int hvd_state_add_memory(hvd_state state, const char* name, void* memory, size_t bytes) {
  return with_state(state, [&](State& own) {
    constexpr const char* kCall = "hvd_state_add_memory";
    const char* const text = &not_null(name, kCall, "name");
    auto* const first = static_cast<std::byte*>(memory);
    if (bytes > 0) not_null(first, kCall, "memory");
    own.add(text, std::span(first, bytes));
  });
}

int hvd_state_add_tensor(hvd_state state, const char* name, const hvd_tensor* tensor) {
  return with_state(state, [&](State& own) {
    constexpr const char* kCall = "hvd_state_add_tensor";
    const char* const text = &not_null(name, kCall, "name");
    own.add(text, tensor_of(tensor, kCall, "tensor"));
  });
}

int hvd_state_add_sampler(hvd_state state, const char* name, hvd_sampler sampler) {
  return with_state(state, [&](State& own) {
    const char* const text = &not_null(name, "hvd_state_add_sampler", "name");
    const auto added = samplers().find(sampler);
    auto handler = hvd::elastic::detail::handler_of_savable(*added);

    // The state keeps the sampler alive.
    handler.load = [added, load = std::move(handler.load)](std::span<const std::byte> from) {
      load(from);
    };
    own.add(text, std::move(handler));
  });
}

int hvd_state_add_handler(hvd_state state, const char* name, const hvd_state_handler* handler) {
  return guard([&] {
    constexpr const char* kCall = "hvd_state_add_handler";
    not_null(handler, kCall, "handler");
    const auto read = read_options<hvd_state_handler>(handler, HVD_STATE_HANDLER_INIT,
                                                      sizeof(hvd_state_handler), kCall);
    const auto owned = std::make_shared<OwnedHandler>(read);
    if (read.bytes == nullptr || read.save == nullptr || read.load == nullptr) {
      refuse(kCall, "(): a handler needs its functions `bytes`, `save` and `load`");
    }

    const char* const text = &not_null(name, kCall, "name");
    hvd::elastic::Handler added{[owned] { return owned->bytes(); },
                                [owned](std::span<std::byte> into) { owned->save(into); },
                                [owned](std::span<const std::byte> from) { owned->load(from); }};
    states().find(state)->add(text, std::move(added));
    return HVD_OK;
  });
}

int hvd_state_on_reset(hvd_state state, int (*callback)(void* data), void* data) {
  return with_state(state, [&](State& own) {
    if (callback == nullptr) refuse("hvd_state_on_reset(): callback is null");
    own.on_reset(
        [callback, data] { run_callback("a reset callback", [&] { return callback(data); }); });
  });
}

int hvd_state_on_notice(hvd_state state, int (*callback)(void* data), void* data) {
  return with_state(state, [&](State& own) {
    if (callback == nullptr) refuse("hvd_state_on_notice(): callback is null");
    own.on_notice(
        [callback, data] { run_callback("a notice callback", [&] { return callback(data); }); });
  });
}

int hvd_state_commit(hvd_state state) {
  return with_state(state, [](State& own) { own.commit(); });
}
int hvd_state_check(hvd_state state) {
  return with_state(state, [](State& own) { own.check_host_updates(); });
}
int hvd_state_change_due(hvd_state state, int32_t* is_due) {
  return with_state(state, [&](State& own) {
    auto& into = not_null(is_due, "hvd_state_change_due", "is_due");
    into = 0;
    into = hvd::elastic::detail::StateImpl::of(own).is_change_due("change_due") ? 1 : 0;
  });
}
int hvd_state_restore(hvd_state state) {
  return with_state(state, [](State& own) { own.restore(); });
}
int hvd_state_sync(hvd_state state) {
  return with_state(state, [](State& own) { own.sync(); });
}

int hvd_state_mutate(hvd_state state, int (*change)(void* data), void* data) {
  return with_state(state, [&](State& own) {
    if (change == nullptr) refuse("hvd_state_mutate(): change is null");
    own.mutate([&] { run_callback("the change of a state", [&] { return change(data); }); });
  });
}

int hvd_run_options_init(hvd_run_options* options, size_t size) {
  return write_defaults(options, size, HVD_RUN_OPTIONS_INIT, sizeof(hvd_run_options),
                        "hvd_run_options_init");
}

int hvd_elastic_run(hvd_state state, int (*function)(void* data), void* data,
                    const hvd_run_options* given) {
  return guard([&]() -> int {
    constexpr const char* kCall = "hvd_elastic_run";
    const auto own = states().find(state);
    if (function == nullptr) refuse(kCall, "(): function is null");
    const auto read =
        read_options<hvd_run_options>(given, HVD_RUN_OPTIONS_INIT, sizeof(hvd_run_options), kCall);

    const auto ending = hvd::elastic::run(*own,
                                          [&] {
                                            forget_failure();
                                            if (const auto failure = failure_of(function(data)))
                                              std::rethrow_exception(failure);
                                          },
                                          {.return_when_left = read.return_when_left != 0});
    if (ending == hvd::elastic::Ending::done) return HVD_OK;
    return note(HVD_ERROR_LEFT, "hvd_elastic_run(): the job goes on without this worker");
  });
}

int hvd_elastic_next(hvd_state state, int code, int32_t* call) {
  return guard([&]() -> int {
    auto& into = not_null(call, "hvd_elastic_next", "call");
    into = 0;
    const auto own = states().find(state);
    if (own->run == nullptr) {
      if (code != HVD_OK) refuse("hvd_elastic_next(): code is ", code, " where a run begins");
      own->run = std::make_unique<Run>(*own);
    }

    // Over, unless the function is to be called.
    std::unique_ptr<Run> run = std::move(own->run);
    switch (run->next(failure_of(code))) {
      case Turn::call:
        own->run = std::move(run);
        into = 1;
        return HVD_OK;
      case Turn::done:
        return HVD_OK;
      case Turn::left:
        return note(HVD_ERROR_LEFT, "hvd_elastic_next(): the job goes on without this worker");
    }
    return HVD_ERROR_INTERNAL;
  });
}
