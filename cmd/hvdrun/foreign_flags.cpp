#include "cmd/hvdrun/foreign_flags.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace hvd::cli {
namespace {

// In an answer, N stands for the value.
struct ForeignFlag {
  std::string_view flag;
  std::string_view answer;
  bool takes_value = true;
  std::string_view answer_to_word = {};  // to a value that is no number
};

constexpr std::string_view kMpi = "launching through MPI is not in this version";
constexpr std::string_view kJsrun = "launching through jsrun (LSF) is not in this version";

constexpr std::array kOfHorovod{
    ForeignFlag{"--mpi", kMpi, false},
    ForeignFlag{"--mpi-args", kMpi},
    ForeignFlag{"--binding-args", kMpi},
    ForeignFlag{"--jsrun", kJsrun, false},
};

constexpr std::string_view kNoRendezvous = "not needed, since hvdrun holds the rendezvous service";
constexpr std::string_view kNoMaster =
    "not needed, since hvdrun chooses MASTER_ADDR and MASTER_PORT";
constexpr std::string_view kOutput = "--output-filename DIRECTORY";
constexpr std::string_view kNotYet = "not in this version";

constexpr std::array kOfTorchrun{
    ForeignFlag{
        "--nproc-per-node", "-np N, or -H HOST:N", true,
        "-H HOST, without slots: one worker for each GPU, or for each core if there is none"},
    ForeignFlag{"--nnodes",
                "-H HOST:SLOTS,..., or --host-discovery-script PROGRAM with --min-np "
                "and --max-np"},
    ForeignFlag{"--node-rank", "not needed, since hvdrun starts the workers of all hosts in -H"},
    ForeignFlag{"--standalone", kNoRendezvous, false},
    ForeignFlag{"--rdzv-backend", kNoRendezvous},
    ForeignFlag{"--rdzv-endpoint", kNoRendezvous},
    ForeignFlag{"--rdzv-id", kNoRendezvous},
    ForeignFlag{"--rdzv-conf", "--elastic-timeout SECONDS and --start-timeout SECONDS"},
    ForeignFlag{"--master-addr", kNoMaster},
    ForeignFlag{"--master-port", kNoMaster},
    ForeignFlag{"--local-addr", "--advertise-address N"},
    ForeignFlag{"--monitor-interval", "not needed, since hvdrun learns of an exit at once"},
    ForeignFlag{"--start-method", "not needed, since a worker is a program of its own"},
    ForeignFlag{"--role", "not needed, since all workers are of one kind"},
    ForeignFlag{"--module", "hvdrun [options] python -m N"},
    ForeignFlag{"-m", "hvdrun [options] python -m N"},
    ForeignFlag{"--no-python", "not needed, since hvdrun runs any program", false},
    ForeignFlag{"--run-path", "hvdrun [options] python N"},
    ForeignFlag{"--log-dir", "--output-filename N"},
    ForeignFlag{"--redirects", kOutput},
    ForeignFlag{"-r", kOutput},
    ForeignFlag{"--tee", kOutput},
    ForeignFlag{"-t", kOutput},
    ForeignFlag{"--log-line-prefix-template", "--tag-output and --prefix-output-with-timestamp"},
    ForeignFlag{"--duplicate-stdout-filters", kNotYet},
    ForeignFlag{"--duplicate-stderr-filters", kNotYet},
    ForeignFlag{"--event-log-handler", kNotYet},
    ForeignFlag{"--logs-specs", kNotYet},
    ForeignFlag{"--signals-to-handle",
                "not needed, since hvdrun handles SIGINT, SIGTERM and SIGHUP"},
    ForeignFlag{"--shutdown-timeout", "--grace N"},
    ForeignFlag{"--numa-binding", "--bind numa, or --bind cores"},
    ForeignFlag{"--virtual-local-rank", kNotYet, false},
};

std::string fill_in(std::string_view answer, std::string_view value) {
  std::string text;
  for (std::size_t at = 0; at < answer.size(); ++at) {
    const bool begins = at == 0 || answer[at - 1] == ' ' || answer[at - 1] == ':';
    const bool ends = at + 1 == answer.size() || answer[at + 1] == ',';
    if (answer[at] == 'N' && begins && ends && !value.empty()) {
      text += value;
    } else {
      text += answer[at];
    }
  }
  return text;
}

template <std::size_t Count>
std::optional<std::string> find_answer(const std::array<ForeignFlag, Count>& flags,
                                       std::string_view typed, std::string_view value,
                                       std::string_view owner) {
  // torchrun takes both.
  std::string flag(typed);
  std::replace(flag.begin(), flag.end(), '_', '-');
  const auto* const found = std::find_if(flags.begin(), flags.end(),
                                         [&](const ForeignFlag& one) { return one.flag == flag; });
  if (found == flags.end()) return std::nullopt;
  if (!found->takes_value) value = {};
  const bool is_word = !value.empty() && !parse_number<int>(value);
  const auto answer =
      is_word && !found->answer_to_word.empty() ? found->answer_to_word : found->answer;
  return cat(typed, value.empty() ? "" : " ", value, ": ", fill_in(answer, value), owner);
}

}  // namespace

std::optional<std::string> answer_to_foreign_flag(std::string_view flag, std::string_view value) {
  if (auto answer = find_answer(kOfHorovod, flag, "", "")) return answer;
  return find_answer(kOfTorchrun, flag, value, " (a flag of torchrun)");
}

}  // namespace hvd::cli
