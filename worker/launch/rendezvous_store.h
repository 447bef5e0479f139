// A LauncherStore over a rendezvous service that somebody has started (`hvdrun rendezvous`): for
// launchers that give their processes a rank and a size, and no means to meet.
#pragma once

#include <memory>

#include "base/knobs.h"
#include "base/other_launcher.h"
#include "base/status.h"
#include "worker/launch/launcher_store.h"

namespace hvd::worker {

// Where the service is, "10.0.0.1:4000", and the file with its token.
inline constexpr std::string_view kRendezvousVariable = "HVD_RENDEZVOUS";
inline constexpr std::string_view kTokenFileVariable = "HVD_TOKEN_FILE";  // "./hvd-token"
// Names this run, if the launcher does not: what an earlier one has said may still be there.
inline constexpr std::string_view kRunIdVariable = "HVD_RUN_ID";

// The environment names such a service.
bool has_rendezvous(const EnvironmentLookup& lookup);

// An error names the variable, or the file, that is wrong.
Result<std::unique_ptr<LauncherStore>> open_rendezvous_store(const EnvironmentLookup& lookup,
                                                             const OtherLaunch& launch);

}  // namespace hvd::worker
