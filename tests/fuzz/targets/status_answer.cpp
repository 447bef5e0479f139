// The answer of a job to `hvdrun status`, which may be another user's program for root.
#include <nlohmann/json.hpp>

#include "cmd/hvdrun/status_text.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hvd;
  const fuzz::Input input(data, size);
  const auto answer = nlohmann::json::parse(input.rest(), nullptr, false);
  if (answer.is_discarded()) return 0;
  const auto text = cli::status_text(answer);
  if (!text.ok()) {
    fuzz::must_explain(text.status());
    return 0;
  }
  fuzz::must_be_printable(*text);
  if (cli::is_job_status(answer)) {
    fuzz::must_be_printable(cli::jobs_text({cli::job_row(answer)}));
  }
  return 0;
}
