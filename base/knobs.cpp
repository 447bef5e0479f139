#include "base/knobs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "base/log.h"
#include "base/port_range.h"
#include "base/text.h"

namespace hvd {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;
// The largest value of the int that programs built with Horovod read these values into.
constexpr double kMaxInt = 2'147'483'647;
constexpr double kYearInSeconds = 31'536'000;

constexpr std::array kKnobs{
    Knob{.flag = "fusion-threshold-mb",
         .config_key = "params.fusion_threshold_mb",
         .variable = "HVD_FUSION_THRESHOLD",
         .horovod_name = "HOROVOD_FUSION_THRESHOLD",
         .type = KnobType::integer,
         .default_text = "134217728",
         .maximum = 1'048'576,
         .environment_scale = kMebibyte,
         .help = "Megabytes up to which small tensors are fused into one operation; 0: no fusion"},
    Knob{.flag = "cycle-time-ms",
         .config_key = "params.cycle_time_ms",
         .variable = "HVD_CYCLE_TIME",
         .horovod_name = "HOROVOD_CYCLE_TIME",
         .type = KnobType::real,
         .default_text = "1",
         .maximum = 60'000,
         .help = "Maximum milliseconds to collect tensors for one fused operation"},
    Knob{.flag = "cache-capacity",
         .config_key = "params.cache_capacity",
         .variable = "HVD_CACHE_CAPACITY",
         .horovod_name = "HOROVOD_CACHE_CAPACITY",
         .type = KnobType::integer,
         .default_text = "8192",
         .maximum = kMaxInt,
         .help = "Number of tensors in the response cache; 0: no cache"},
    Knob{.flag = "deterministic",
         .config_key = "params.deterministic",
         .variable = "HVD_DETERMINISTIC",
         .horovod_name = "HOROVOD_DETERMINISTIC",
         .type = KnobType::boolean,
         .default_text = "0",
         .help =
             "Bitwise equal results for equal inputs and numbers of workers, whatever the timing"},
    Knob{.flag = "dynamic-process-sets",
         .config_key = "params.dynamic_process_sets",
         .variable = "HVD_DYNAMIC_PROCESS_SETS",
         .horovod_name = "HOROVOD_DYNAMIC_PROCESS_SETS",
         .type = KnobType::boolean,
         .default_text = "0",
         .help = "Allow adding and removing process sets after hvd::init()"},
    Knob{.flag = "hierarchical-allreduce",
         .config_key = "params.hierarchical_allreduce",
         .variable = "HVD_HIERARCHICAL_ALLREDUCE",
         .horovod_name = "HOROVOD_HIERARCHICAL_ALLREDUCE",
         .type = KnobType::boolean,
         .help = "Reduce within each host first, then between hosts (default: on where workers of "
                 "a host share memory)"},
    Knob{.flag = "hierarchical-allgather",
         .config_key = "params.hierarchical_allgather",
         .variable = "HVD_HIERARCHICAL_ALLGATHER",
         .horovod_name = "HOROVOD_HIERARCHICAL_ALLGATHER",
         .type = KnobType::boolean,
         .help = "Gather within each host first, then between hosts (default: on where workers of "
                 "a host share memory)"},
    Knob{.flag = "torus-allreduce",
         .config_key = "params.torus_allreduce",
         .variable = "HVD_TORUS_ALLREDUCE",
         .horovod_name = "HOROVOD_TORUS_ALLREDUCE",
         .type = KnobType::boolean,
         .default_text = "0",
         .help = "Reduce along the two axes of a torus of hosts and slots"},
    Knob{.flag = "autotune",
         .config_key = "autotune.enabled",
         .variable = "HVD_AUTOTUNE",
         .horovod_name = "HOROVOD_AUTOTUNE",
         .type = KnobType::boolean,
         .default_text = "0",
         .help =
             "Tune the fusion threshold, the cycle time, the response cache, and whether allreduce "
             "and allgather are hierarchical, during training"},
    Knob{.flag = "autotune-log-file",
         .config_key = "autotune.log_file",
         .variable = "HVD_AUTOTUNE_LOG",
         .horovod_name = "HOROVOD_AUTOTUNE_LOG",
         .type = KnobType::text,
         .help = "CSV file for the autotuner's samples"},
    Knob{.flag = "autotune-warmup-samples",
         .config_key = "autotune.warmup_samples",
         .variable = "HVD_AUTOTUNE_WARMUP_SAMPLES",
         .horovod_name = "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
         .type = KnobType::integer,
         .default_text = "3",
         .maximum = kMaxInt,
         .help = "Number of first samples that the autotuner discards"},
    Knob{.flag = "autotune-steps-per-sample",
         .config_key = "autotune.steps_per_sample",
         .variable = "HVD_AUTOTUNE_STEPS_PER_SAMPLE",
         .horovod_name = "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
         .type = KnobType::integer,
         .default_text = "10",
         .maximum = kMaxInt,
         .help = "Number of steps in one sample of the autotuner"},
    Knob{.flag = "autotune-bayes-opt-max-samples",
         .config_key = "autotune.bayes_opt_max_samples",
         .variable = "HVD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
         .horovod_name = "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
         .type = KnobType::integer,
         .default_text = "20",
         .maximum = kMaxInt,
         .help = "Number of samples after which the autotuner settles"},
    Knob{.flag = "autotune-gaussian-process-noise",
         .config_key = "autotune.gaussian_process_noise",
         .variable = "HVD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
         .horovod_name = "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
         .type = KnobType::real,
         .default_text = "0.8",
         .maximum = 1,
         .help = "Expected noise of the autotuner's samples, 0 to 1"},
    Knob{.flag = "timeline-filename",
         .config_key = "timeline.filename",
         .variable = "HVD_TIMELINE",
         .horovod_name = "HOROVOD_TIMELINE",
         .type = KnobType::text,
         .help =
             "Write a timeline of all tensors to this file; DYNAMIC: start when the program asks"},
    Knob{.flag = "timeline-mark-cycles",
         .config_key = "timeline.mark_cycles",
         .variable = "HVD_TIMELINE_MARK_CYCLES",
         .horovod_name = "HOROVOD_TIMELINE_MARK_CYCLES",
         .type = KnobType::boolean,
         .default_text = "0",
         .help = "Mark the negotiation cycles in the timeline"},
    Knob{.flag = "flight-recorder",
         .config_key = "timeline.flight_recorder",
         .variable = "HVD_FLIGHT_RECORDER",
         .horovod_name = "HOROVOD_FLIGHT_RECORDER",
         .type = KnobType::text,
         .help = "Directory (or stderr) where each worker writes its last operations when the job "
                 "fails, stalls or gets SIGUSR1"},
    Knob{.flag = "stall-check",
         .config_key = "stall_check.enabled",
         .variable = "HVD_STALL_CHECK_DISABLE",
         .horovod_name = "HOROVOD_STALL_CHECK_DISABLE",
         .type = KnobType::boolean,
         .default_text = "0",
         .inverted = true,
         .help = "Warn when some ranks wait for a tensor that others have not submitted"},
    Knob{.flag = "stall-check-warning-time-seconds",
         .config_key = "stall_check.warning_time_seconds",
         .variable = "HVD_STALL_CHECK_TIME_SECONDS",
         .horovod_name = "HOROVOD_STALL_CHECK_TIME_SECONDS",
         .type = KnobType::integer,
         .default_text = "60",
         .maximum = kYearInSeconds,
         .help = "Seconds until the warning of the stall check"},
    Knob{.flag = "stall-check-shutdown-time-seconds",
         .config_key = "stall_check.shutdown_time_seconds",
         .variable = "HVD_STALL_SHUTDOWN_TIME_SECONDS",
         .horovod_name = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
         .type = KnobType::integer,
         .default_text = "0",
         .maximum = kYearInSeconds,
         .help = "Seconds until a stall ends the job; 0: never"},
    Knob{.flag = "cpu-operations",
         .config_key = "library_options.cpu_operations",
         .variable = "HVD_CPU_OPERATIONS",
         .horovod_name = "HOROVOD_CPU_OPERATIONS",
         .type = KnobType::text,
         .default_text = "gloo",
         .choices = "gloo,mpi,ccl",
         .help =
             "What reduces tensors of the host: gloo (hvd's own connections and shared memory), "
             "mpi in programs that mpirun or srun starts, or ccl (oneCCL) in static jobs"},
    Knob{.flag = "mpi-threads-disable",
         .config_key = "library_options.mpi_threads_disable",
         .variable = "HVD_MPI_THREADS_DISABLE",
         .horovod_name = "HOROVOD_MPI_THREADS_DISABLE",
         .type = KnobType::boolean,
         .default_text = "0",
         .help = "Do not ask MPI for calls from several threads at the same time"},
    Knob{.flag = "num-nccl-streams",
         .config_key = "library_options.num_nccl_streams",
         .variable = "HVD_NUM_NCCL_STREAMS",
         .horovod_name = "HOROVOD_NUM_NCCL_STREAMS",
         .type = KnobType::integer,
         .default_text = "1",
         .minimum = 1,
         .maximum = 1024,
         .help = "Number of streams for NCCL operations"},
    Knob{.flag = "state-file",
         .config_key = "elastic.state_file",
         .variable = "HVD_STATE_FILE",
         .horovod_name = "HOROVOD_STATE_FILE",
         .type = KnobType::text,
         .help = "File for the state of an elastic job that is suspended (SIGTERM): the same "
                 "command goes on from there"},
    Knob{.flag = "state-every",
         .config_key = "elastic.state_every_seconds",
         .variable = "HVD_STATE_EVERY",
         .horovod_name = "HOROVOD_STATE_EVERY",
         .type = KnobType::real,
         .minimum = 0.001,
         .maximum = kYearInSeconds,
         .help = "Seconds after which the state is written to the --state-file during training, "
                 "too, at a commit (default: only when the job is suspended)"},
    Knob{.flag = "ledger",
         .config_key = "elastic.ledger",
         .variable = "HVD_LEDGER",
         .horovod_name = "HOROVOD_LEDGER",
         .type = KnobType::text,
         .help = "File for a digest of each tensor of the state at each commit: hvdrun compare "
                 "finds where two runs differ"},
    Knob{.flag = "state-on-device-limit-mb",
         .config_key = "library_options.state_on_device_limit_mb",
         .variable = "HVD_STATE_ON_DEVICE_LIMIT",
         .horovod_name = "HOROVOD_STATE_ON_DEVICE_LIMIT",
         .type = KnobType::integer,
         .maximum = 1'048'576,
         .environment_scale = kMebibyte,
         .help = "Megabytes of GPU memory for copies of an elastic state; the rest goes to pinned "
                 "host memory (default: a quarter of the free memory)"},
    Knob{.flag = "thread-affinity",
         .config_key = "library_options.thread_affinity",
         .variable = "HVD_THREAD_AFFINITY",
         .horovod_name = "HOROVOD_THREAD_AFFINITY",
         .type = KnobType::integer_list,
         .maximum = 65'535,
         .help =
             "Core of the background thread: one number, or one for each local rank, as in 0,4,8"},
    Knob{.flag = "collective-timeout",
         .aliases = "gloo-timeout-seconds",
         .config_key = "library_options.collective_timeout",
         .variable = "HVD_COLLECTIVE_TIMEOUT",
         .horovod_name = "HOROVOD_GLOO_TIMEOUT_SECONDS",
         .type = KnobType::integer,
         .default_text = "30",
         .minimum = 1,
         .maximum = kYearInSeconds,
         .help = "Seconds that one operation waits for a rank that is silent"},
    Knob{
        .flag = "transport",
        .config_key = "library_options.transport",
        .variable = "HVD_TRANSPORT",
        .horovod_name = "HOROVOD_TRANSPORT",
        .type = KnobType::text,
        .default_text = "hvd",
        .choices = "hvd,gloo-tcp",
        .help = "Transport of tensors between ranks: hvd, or gloo-tcp (Gloo's own) for comparison"},
    Knob{.flag = "sockets-per-pair",
         .config_key = "params.sockets_per_pair",
         .variable = "HVD_SOCKETS_PER_PAIR",
         .horovod_name = "HOROVOD_SOCKETS_PER_PAIR",
         .type = KnobType::integer,
         .default_text = "1",
         .minimum = 1,
         .maximum = 16,
         .help = "Number of connections between two workers; large messages are split over them"},
    Knob{.flag = "data-security",
         .config_key = "params.data_security",
         .variable = "HVD_DATA_SECURITY",
         .horovod_name = "HOROVOD_DATA_SECURITY",
         .type = KnobType::text,
         .default_text = "integrity",
         .choices = "none,integrity,encrypted",
         .help = "Protection of tensors between hosts: integrity finds what was altered or forged, "
                 "encrypted hides it as well, none does neither"},
    Knob{.flag = "shared-memory",
         .config_key = "params.shared_memory",
         .variable = "HVD_SHARED_MEMORY",
         .horovod_name = "HOROVOD_SHARED_MEMORY",
         .type = KnobType::boolean,
         .default_text = "1",
         .help = "Let workers of one host reduce in shared memory"},
    Knob{.flag = "tcp",
         .config_key = "library_options.tcp",
         .variable = "HVD_NCCL_IB_DISABLE",
         .horovod_name = "NCCL_IB_DISABLE",
         .type = KnobType::boolean,
         .default_text = "0",
         .help = "Use only TCP between hosts, no InfiniBand"},
    // It holds for hvdrun and its agents, too.
    Knob{.flag = "port-range",
         .config_key = "network.port_range",
         .variable = "HVD_PORT_RANGE",
         .horovod_name = "HOROVOD_PORT_RANGE",
         .type = KnobType::port_range,
         .help = "Ports for all listeners of the job on every host, as in 40000-40999 (default: "
                 "any)"},
    // Ours and the workers': it bounds the connections between the ranks, too.
    Knob{.flag = "start-timeout",
         .config_key = "launch.start_timeout_seconds",
         .variable = "HVD_START_TIMEOUT",
         .horovod_name = "HOROVOD_START_TIMEOUT",
         .type = KnobType::real,
         .default_text = "30",
         .minimum = 0.001,
         .maximum = kYearInSeconds,
         .help = "Seconds for each host to be ready, each worker to start, and ranks to connect"},
    Knob{.flag = "init-timeout",
         .config_key = "launch.init_timeout_seconds",
         .variable = "HVD_INIT_TIMEOUT",
         .horovod_name = "HOROVOD_INIT_TIMEOUT",
         .type = KnobType::real,
         .default_text = "3600",
         .minimum = 0.001,
         .maximum = kYearInSeconds,
         .help = "Seconds that hvd::init() waits for ranks that run but have not called it, and "
                 "hvd::shutdown() for ranks that still work"},
    Knob{.flag = "log-level",
         .config_key = "logging.level",
         .variable = "HVD_LOG_LEVEL",
         .horovod_name = "HOROVOD_LOG_LEVEL",
         .type = KnobType::log_level,
         .default_text = "warning",
         .help = "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL, for workers and hvdrun"},
    Knob{.flag = "log-with-timestamp",
         .config_key = "logging.with_timestamp",
         .variable = "HVD_LOG_HIDE_TIME",
         .horovod_name = "HOROVOD_LOG_HIDE_TIME",
         .type = KnobType::boolean,
         .default_text = "0",
         .inverted = true,
         .help = "Show the time in log lines"},
};

// Without an exponent, and without decimals that say nothing: 134217728, 0.5.
std::string plain(double number) {
  std::ostringstream out;
  out.precision(15);
  out << number;
  return std::move(out).str();
}

std::string plain_integer(double number) { return std::to_string(std::llround(number)); }

std::optional<bool> parse_boolean(std::string_view text) {
  const std::string lower = lower_case(text);
  for (const std::string_view yes : {"1", "true", "yes", "on"}) {
    if (lower == yes) return true;
  }
  for (const std::string_view no : {"0", "false", "no", "off"}) {
    if (lower == no) return false;
  }
  return std::nullopt;
}

// "HVD_" and "min-num-proc": HVD_MIN_NUM_PROC.
std::string spelt(std::string_view prefix, std::string_view flag, bool in_capitals) {
  std::string name(prefix);
  for (const char c : flag) {
    const bool is_letter = c >= 'a' && c <= 'z';
    name += c == '-' ? '_' : is_letter && in_capitals ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return name;
}

// A value is in the flag's unit or in the environment's; `scale` is what one of the flag's units is
// worth in the value's.
std::string allowed(const Knob& knob, double scale) {
  const double low = knob.minimum * scale;
  const double high = knob.maximum * scale;
  const std::string range = knob.maximum != 0
                                ? cat("from ", plain(low), " to ", plain_integer(high))
                                : cat("of at least ", plain(low));
  switch (knob.type) {
    case KnobType::integer:
      return cat("an integer ", range);
    case KnobType::real:
      return cat("a number ", range);
    case KnobType::boolean:
      return "1 or 0, true or false, yes or no, on or off";
    case KnobType::text:
      if (!knob.choices.empty()) return cat("one of ", join(split(knob.choices, ','), ", "));
      return "a text that is not empty";
    case KnobType::log_level:
      return "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL";
    case KnobType::integer_list:
      return cat("integers ", range, " with commas between them");
    case KnobType::port_range:
      return std::string(kPortRangeForm);
  }
  return "something else";
}

bool in_range(const Knob& knob, double value, double scale) {
  return value >= knob.minimum * scale && (knob.maximum == 0 || value <= knob.maximum * scale);
}

// `text` as the environment spells it. `flag_unit`: it is in the flag's unit and sense, else it
// comes from the environment itself.
std::optional<std::string> convert(const Knob& knob, std::string_view text, bool flag_unit) {
  const double scale = flag_unit ? 1 : knob.environment_scale;
  const double factor = flag_unit ? knob.environment_scale : 1;

  switch (knob.type) {
    case KnobType::integer: {
      const auto number = parse_number<std::int64_t>(text);
      if (!number || !in_range(knob, static_cast<double>(*number), scale)) return std::nullopt;
      return std::to_string(*number * static_cast<std::int64_t>(factor));
    }
    case KnobType::real: {
      const auto number = parse_number<double>(text);
      if (!number || !std::isfinite(*number) || !in_range(knob, *number, scale)) {
        return std::nullopt;
      }
      return plain(*number * factor);
    }
    case KnobType::boolean: {
      auto value = parse_boolean(text);
      if (!value) return std::nullopt;
      if (flag_unit && knob.inverted) value = !*value;
      return *value ? "1" : "0";
    }
    case KnobType::text:
      if (text.empty() || text.find('\0') != std::string_view::npos) return std::nullopt;
      if (knob.choices.empty()) return std::string(text);
      for (const auto& choice : split(knob.choices, ',')) {
        if (lower_case(text) == choice) return choice;
      }
      return std::nullopt;
    case KnobType::log_level: {
      const auto level = parse_log_level(text);
      if (!level || *level == LogLevel::off) return std::nullopt;
      constexpr std::array<const char*, 6> kNames{"trace",   "debug", "info",
                                                  "warning", "error", "fatal"};
      return kNames.at(static_cast<std::size_t>(*level));
    }
    case KnobType::integer_list: {
      if (text.empty()) return std::nullopt;
      std::vector<std::string> fields = split(text, ',');
      for (auto& field : fields) {
        const auto number = parse_number<std::int64_t>(trim(field));
        if (!number || !in_range(knob, static_cast<double>(*number), scale)) return std::nullopt;
        field = std::to_string(*number);
      }
      return join(fields, ",");
    }
    case KnobType::port_range: {
      const auto range = parse_port_range(text);
      if (!range) return std::nullopt;
      return range->to_string();
    }
  }
  return std::nullopt;
}

}  // namespace

std::span<const Knob> knobs() { return kKnobs; }

const Knob* find_knob_by_variable(std::string_view variable) {
  for (const Knob& knob : kKnobs) {
    if (knob.variable == variable || knob.horovod_name == variable) return &knob;
    if (knob.aliases.empty()) continue;
    const auto names = knob_variables(knob);
    if (std::find(names.begin(), names.end(), variable) != names.end()) return &knob;
  }
  return nullptr;
}

std::vector<std::string> knob_aliases(const Knob& knob) {
  return knob.aliases.empty() ? std::vector<std::string>() : split(knob.aliases, ',');
}

std::vector<std::string> knob_variables(const Knob& knob) {
  std::vector<std::string> names;
  if (knob.variable.empty()) return names;
  names.emplace_back(knob.variable);
  for (const auto& alias : knob_aliases(knob)) {
    if (!alias.starts_with('-')) names.push_back(spelt("HVD_", alias, true));
  }
  if (!knob.horovod_name.empty()) names.emplace_back(knob.horovod_name);
  return names;
}

bool has_config_key(const Knob& knob, std::string_view key) {
  if (knob.config_key == key) return true;
  const auto section = knob.config_key.substr(0, knob.config_key.find('.') + 1);
  const auto aliases = knob_aliases(knob);
  return std::any_of(aliases.begin(), aliases.end(), [&](const std::string& alias) {
    return !alias.starts_with('-') && spelt(section, alias, false) == key;
  });
}

Result<std::string> knob_environment_value(const Knob& knob, std::string_view text,
                                           std::string_view shown_as) {
  if (auto value = convert(knob, text, true)) return *value;
  const std::string name = shown_as.empty() ? cat("--", knob.flag) : std::string(shown_as);
  return Status(Code::invalid_argument, cat(name, "=", text, ": must be ", allowed(knob, 1)));
}

Result<std::optional<std::string>> knob_from_environment(const Knob& knob,
                                                         const EnvironmentLookup& lookup) {
  for (const auto& name : knob_variables(knob)) {
    const auto text = lookup(name);
    if (!text || text->empty()) continue;
    if (auto value = convert(knob, *text, false)) return value;
    return Status(Code::invalid_argument, cat("environment variable ", name, "=", *text,
                                              ": must be ", allowed(knob, knob.environment_scale)));
  }
  return std::optional<std::string>();
}

EnvironmentLookup process_environment() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* const value = std::getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

}  // namespace hvd
