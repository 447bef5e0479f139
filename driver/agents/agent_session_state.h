// The states of an AgentSession, and for each of them the states that may follow it. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace hvd::driver {

enum class AgentSessionState : std::uint8_t {
  greeting,    // Hello and Check were sent
  identified,  // Ready has come, Checked has not
  checked,     // Checked has come, Ready has not
  ready,       // both have come, and AgentReady was reported
  leaving,     // the agent has said goodbye
  left_early,  // it has said goodbye before it was ready
  rejected,    // it cannot take part and is being killed; HostFailed will be reported
  dropped,     // the job has dropped it before it was ready; AgentGone will be reported
  ended,       // the agent and its link have ended, and the last event was reported
  closed,      // the session was destroyed: there are no more callbacks
};

struct AgentSessionStateRow {
  AgentSessionState state;
  std::string_view name;
  std::uint16_t successors;  // a bit for each; `closed` may follow every other state
};

constexpr std::uint16_t bit_of(AgentSessionState state) {
  return static_cast<std::uint16_t>(1U << static_cast<unsigned>(state));
}

constexpr std::uint16_t set_of(std::initializer_list<AgentSessionState> states) {
  std::uint16_t set = 0;
  for (const auto state : states) set = static_cast<std::uint16_t>(set | bit_of(state));
  return set;
}

// In the order of the enum.
inline constexpr auto kAgentSessionStates = [] {
  using enum AgentSessionState;
  return std::array<AgentSessionStateRow, 10>{{
      {greeting, "greeting", set_of({identified, checked, left_early, rejected, dropped, ended})},
      {identified, "identified", set_of({ready, left_early, rejected, dropped, ended})},
      {checked, "checked", set_of({ready, left_early, rejected, dropped, ended})},
      {ready, "ready", set_of({leaving, ended})},
      {leaving, "leaving", set_of({ended})},
      {left_early, "left_early", set_of({rejected, dropped, ended})},
      {rejected, "rejected", set_of({dropped, ended})},
      {dropped, "dropped", set_of({ended})},
      {ended, "ended", set_of({})},
      {closed, "closed", set_of({})},
  }};
}();

constexpr const AgentSessionStateRow& row_of(AgentSessionState state) {
  return kAgentSessionStates.at(static_cast<std::size_t>(state));
}

constexpr std::string_view name_of(AgentSessionState state) { return row_of(state).name; }

constexpr bool may_follow(AgentSessionState from, AgentSessionState to) {
  if (to == AgentSessionState::closed) return from != to;
  return (row_of(from).successors & bit_of(to)) != 0;
}

}  // namespace hvd::driver
