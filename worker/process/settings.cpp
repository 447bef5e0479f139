#include "worker/process/settings.h"

#include "base/log.h"
#include "base/text.h"

namespace hvd::worker {
namespace {

// The text of a knob that is set; nothing if it is not. A name that the table of knobs lacks is a
// mistake in this file: it would otherwise read as a setting that is never set.
Result<std::optional<std::string>> text_of(std::string_view variable,
                                           const EnvironmentLookup& lookup) {
  const Knob* const knob = find_knob_by_variable(variable);
  if (knob == nullptr) {
    return Status(Code::internal, cat("there is no setting called ", variable, " (base/knobs.h)"));
  }
  return knob_from_environment(*knob, lookup);
}

// Hands the number that `variable` is set to on to `apply`. The table has checked its range.
template <typename Apply>
Status read_number(std::string_view variable, const EnvironmentLookup& lookup, Apply apply) {
  auto text = text_of(variable, lookup);
  HVD_RETURN_IF_ERROR(text.status());
  if (!text->has_value()) return {};
  const auto number = parse_number<double>(**text);
  if (!number) return {Code::invalid_argument, cat(variable, "=", **text, ": not a number")};
  apply(*number);
  return {};
}

// The timeline and the flight recorder.
Status read_trace_settings(const EnvironmentLookup& lookup, runtime::Config& config) {
  auto timeline = text_of("HVD_TIMELINE", lookup);
  HVD_RETURN_IF_ERROR(timeline.status());
  // Horovod's word for "only when the program asks", which it always may here.
  if (timeline->has_value() && **timeline != "DYNAMIC") config.timeline = **timeline;
  HVD_RETURN_IF_ERROR(read_number("HVD_TIMELINE_MARK_CYCLES", lookup,
                                  [&](double mark) { config.timeline_mark_cycles = mark != 0; }));
  auto recorder = text_of("HVD_FLIGHT_RECORDER", lookup);
  HVD_RETURN_IF_ERROR(recorder.status());
  config.flight_recorder = recorder->value_or("");
  return {};
}

// MASTER_PORT is a port of the range, too, which the program binds itself.
Status read_ports(const EnvironmentLookup& lookup, runtime::Config& config) {
  auto range = text_of("HVD_PORT_RANGE", lookup);
  HVD_RETURN_IF_ERROR(range.status());
  if (!range->has_value()) return {};
  if (config.transport == runtime::Transport::gloo_tcp) {
    return {Code::invalid_argument, cat("HVD_PORT_RANGE=", **range,
                                        " is for HVD_TRANSPORT=hvd: gloo-tcp listens on ports "
                                        "that the kernel chooses")};
  }
  config.ports.range = parse_port_range(**range);
  const auto master = lookup("MASTER_PORT");
  if (master) config.ports.avoided = parse_number<std::uint16_t>(*master).value_or(0);
  return {};
}

// Only our own connections protect tensors.
Status read_data_security(const EnvironmentLookup& lookup, runtime::Config& config) {
  auto text = text_of("HVD_DATA_SECURITY", lookup);
  HVD_RETURN_IF_ERROR(text.status());
  if (!text->has_value()) return {};
  config.data_security = *protection_named(**text);
  if (config.data_security == Protection::none) return {};

  const auto refuse = [&](std::string_view variable, std::string_view value) -> Status {
    return {Code::invalid_argument,
            cat("HVD_DATA_SECURITY=", **text, " and ", variable, "=", value, ": ", value,
                " protects nothing that it carries. Leave one of them out, or say none")};
  };
  if (config.transport == runtime::Transport::gloo_tcp) return refuse("HVD_TRANSPORT", "gloo-tcp");
  if (config.cpu_operations != runtime::CpuOperations::gloo) {
    return refuse("HVD_CPU_OPERATIONS", runtime::name_of(config.cpu_operations));
  }
  return {};
}

std::chrono::milliseconds seconds(double count) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(count * 1e3));
}

Status read_tuning(const EnvironmentLookup& lookup, runtime::TuningOptions& tuning) {
  HVD_RETURN_IF_ERROR(
      read_number("HVD_AUTOTUNE", lookup, [&](double on) { tuning.enabled = on != 0; }));
  HVD_RETURN_IF_ERROR(read_number("HVD_AUTOTUNE_WARMUP_SAMPLES", lookup, [&](double count) {
    tuning.warmup_samples = static_cast<int>(count);
  }));
  HVD_RETURN_IF_ERROR(read_number("HVD_AUTOTUNE_STEPS_PER_SAMPLE", lookup, [&](double count) {
    tuning.steps_per_sample = static_cast<int>(count);
  }));
  HVD_RETURN_IF_ERROR(read_number("HVD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", lookup, [&](double count) {
    tuning.max_samples = static_cast<int>(count);
  }));
  HVD_RETURN_IF_ERROR(read_number("HVD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", lookup,
                                  [&](double noise) { tuning.noise = noise; }));
  auto log = text_of("HVD_AUTOTUNE_LOG", lookup);
  HVD_RETURN_IF_ERROR(log.status());
  tuning.log_path = log->value_or("");

  // The tuner leaves a value alone that the user has set.
  const auto freeze = [&](std::string_view variable, bool& frozen) -> Status {
    auto text = text_of(variable, lookup);
    HVD_RETURN_IF_ERROR(text.status());
    frozen = frozen || text->has_value();
    return {};
  };
  auto& frozen = tuning.frozen;
  HVD_RETURN_IF_ERROR(freeze("HVD_FUSION_THRESHOLD", frozen.fusion_threshold));
  HVD_RETURN_IF_ERROR(freeze("HVD_CYCLE_TIME", frozen.cycle_time));
  HVD_RETURN_IF_ERROR(freeze("HVD_CACHE_CAPACITY", frozen.cache));
  HVD_RETURN_IF_ERROR(freeze("HVD_HIERARCHICAL_ALLREDUCE", frozen.hierarchical_allreduce));
  HVD_RETURN_IF_ERROR(freeze("HVD_TORUS_ALLREDUCE", frozen.hierarchical_allreduce));
  return freeze("HVD_HIERARCHICAL_ALLGATHER", frozen.hierarchical_allgather);
}

}  // namespace

Result<Settings> settings_from_environment(const EnvironmentLookup& lookup) {
  Settings settings;
  runtime::Config& config = settings.config;

  HVD_RETURN_IF_ERROR(read_number("HVD_FUSION_THRESHOLD", lookup, [&](double bytes) {
    config.fusion_threshold = static_cast<std::size_t>(bytes);
  }));
  HVD_RETURN_IF_ERROR(read_number("HVD_CYCLE_TIME", lookup, [&](double milliseconds) {
    config.cycle_time = std::chrono::microseconds(static_cast<std::int64_t>(milliseconds * 1e3));
  }));
  HVD_RETURN_IF_ERROR(read_number("HVD_CACHE_CAPACITY", lookup, [&](double count) {
    config.cache_capacity = static_cast<std::size_t>(count);
  }));
  HVD_RETURN_IF_ERROR(
      read_number("HVD_DETERMINISTIC", lookup, [&](double on) { config.deterministic = on != 0; }));
  HVD_RETURN_IF_ERROR(read_number("HVD_DYNAMIC_PROCESS_SETS", lookup,
                                  [&](double on) { settings.dynamic_process_sets = on != 0; }));

  // The two are the same for processors (runtime/ops/hierarchy.h).
  for (const auto* const name : {"HVD_HIERARCHICAL_ALLREDUCE", "HVD_TORUS_ALLREDUCE"}) {
    HVD_RETURN_IF_ERROR(read_number(name, lookup, [&](double on) {
      config.hierarchical_allreduce = config.hierarchical_allreduce.value_or(false) || on != 0;
    }));
  }
  HVD_RETURN_IF_ERROR(read_number("HVD_HIERARCHICAL_ALLGATHER", lookup,
                                  [&](double on) { config.hierarchical_allgather = on != 0; }));

  HVD_RETURN_IF_ERROR(read_tuning(lookup, config.tuning));
  HVD_RETURN_IF_ERROR(
      read_number("HVD_SHARED_MEMORY", lookup, [&](double on) { config.shared_memory = on != 0; }));
  HVD_RETURN_IF_ERROR(read_number("HVD_NUM_NCCL_STREAMS", lookup, [&](double count) {
    config.gpu_lanes = static_cast<int>(count);
  }));

  HVD_RETURN_IF_ERROR(read_number("HVD_STALL_CHECK_TIME_SECONDS", lookup,
                                  [&](double count) { config.stall_warning = seconds(count); }));
  HVD_RETURN_IF_ERROR(read_number("HVD_STALL_SHUTDOWN_TIME_SECONDS", lookup,
                                  [&](double count) { config.stall_shutdown = seconds(count); }));
  HVD_RETURN_IF_ERROR(read_number("HVD_STALL_CHECK_DISABLE", lookup, [&](double disable) {
    if (disable != 0) config.stall_warning = {};
  }));
  HVD_RETURN_IF_ERROR(read_number("HVD_COLLECTIVE_TIMEOUT", lookup, [&](double count) {
    config.collective_timeout = seconds(count);
  }));

  auto operations = text_of("HVD_CPU_OPERATIONS", lookup);
  HVD_RETURN_IF_ERROR(operations.status());
  for (const auto known : {runtime::CpuOperations::mpi, runtime::CpuOperations::ccl}) {
    if (*operations == runtime::name_of(known)) config.cpu_operations = known;
  }
  HVD_RETURN_IF_ERROR(read_number("HVD_MPI_THREADS_DISABLE", lookup,
                                  [&](double disable) { config.mpi_threads = disable == 0; }));

  auto transport = text_of("HVD_TRANSPORT", lookup);
  HVD_RETURN_IF_ERROR(transport.status());
  if (transport->value_or("hvd") == "gloo-tcp") config.transport = runtime::Transport::gloo_tcp;
  HVD_RETURN_IF_ERROR(read_number("HVD_SOCKETS_PER_PAIR", lookup, [&](double count) {
    config.sockets_per_pair = static_cast<int>(count);
  }));
  if (config.transport == runtime::Transport::gloo_tcp && config.sockets_per_pair > 1) {
    return Status(Code::invalid_argument,
                  cat("HVD_SOCKETS_PER_PAIR=", config.sockets_per_pair,
                      " is for HVD_TRANSPORT=hvd: gloo-tcp has one connection for each pair"));
  }

  HVD_RETURN_IF_ERROR(read_data_security(lookup, config));
  HVD_RETURN_IF_ERROR(read_ports(lookup, config));
  HVD_RETURN_IF_ERROR(read_number("HVD_START_TIMEOUT", lookup,
                                  [&](double count) { config.connect_timeout = seconds(count); }));
  HVD_RETURN_IF_ERROR(read_number("HVD_INIT_TIMEOUT", lookup, [&](double count) {
    config.rendezvous_timeout = seconds(count);
  }));
  HVD_RETURN_IF_ERROR(read_trace_settings(lookup, config));
  return settings;
}

Result<std::optional<std::size_t>> on_device_limit(const EnvironmentLookup& lookup) {
  std::optional<std::size_t> limit;
  HVD_RETURN_IF_ERROR(read_number("HVD_STATE_ON_DEVICE_LIMIT", lookup,
                                  [&](double bytes) { limit = static_cast<std::size_t>(bytes); }));
  return limit;
}

Result<StateFileSettings> state_file(const EnvironmentLookup& lookup) {
  StateFileSettings settings;
  auto text = text_of("HVD_STATE_FILE", lookup);
  HVD_RETURN_IF_ERROR(text.status());
  settings.file = text->value_or("");
  HVD_RETURN_IF_ERROR(read_number("HVD_STATE_EVERY", lookup,
                                  [&](double count) { settings.every = seconds(count); }));
  if (settings.file.empty() && settings.every.count() != 0) {
    auto every = text_of("HVD_STATE_EVERY", lookup);
    HVD_RETURN_IF_ERROR(every.status());
    return Status(Code::invalid_argument, cat("HVD_STATE_EVERY=", every->value_or(""),
                                              ": it has no effect without HVD_STATE_FILE"));
  }
  return settings;
}

Result<std::string> ledger_file(const EnvironmentLookup& lookup) {
  auto text = text_of("HVD_LEDGER", lookup);
  HVD_RETURN_IF_ERROR(text.status());
  return text->value_or("");
}

Result<int> core_from_environment(const EnvironmentLookup& lookup, int local_rank, int local_size) {
  auto text = text_of("HVD_THREAD_AFFINITY", lookup);
  HVD_RETURN_IF_ERROR(text.status());
  if (!text->has_value()) return -1;
  const auto cores = split(**text, ',');
  const bool for_all = cores.size() == 1;
  if (!for_all && cores.size() < static_cast<std::size_t>(local_size)) {
    return Status(
        Code::invalid_argument,
        cat("HVD_THREAD_AFFINITY=", **text, " names ", cores.size(), " cores for ", local_size,
            " workers on this host. Name one core for all, or one for each."));
  }

  const auto& own = for_all ? cores.front() : cores[static_cast<std::size_t>(local_rank)];
  const auto core = parse_number<int>(own);
  if (!core) {
    return Status(Code::invalid_argument,
                  cat("HVD_THREAD_AFFINITY=", **text, ": \"", own, "\" is not a core"));
  }
  return *core;
}

Status apply_log_settings(const EnvironmentLookup& lookup, std::string_view source) {
  LogOptions options;
  options.who = source;
  auto level = text_of("HVD_LOG_LEVEL", lookup);
  HVD_RETURN_IF_ERROR(level.status());
  if (level->has_value()) {
    const auto parsed = parse_log_level(**level);
    if (!parsed) {
      return {Code::invalid_argument, cat("HVD_LOG_LEVEL=", **level, ": not a log level")};
    }
    options.level = *parsed;
  }
  HVD_RETURN_IF_ERROR(read_number("HVD_LOG_HIDE_TIME", lookup,
                                  [&](double hide) { options.show_time = hide == 0; }));
  set_log_options(options);
  return {};
}

}  // namespace hvd::worker
