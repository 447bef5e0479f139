#include "driver/ssh/remote_script.h"

#include "base/text.h"

namespace hvd::driver::ssh {
namespace {

// $1 nonce, $2 build id, $3 hash, $4 size, $5 machine. Every error of a tool is caught in $e, which
// separates it from any output of the login shell's start files.
constexpr std::string_view kScript =
    "n=$1 b=$2 h=$3 s=$4 m=$5; "
    "no() { echo \"$n:no:$*\"; exit 1; }; "
    // Clears "$@" if there is no sha256sum: without it no agent is ever taken from the cache.
    "same() { set -- $(sha256sum <\"$1\" 2>/dev/null); [ \"$1\" = \"$h\" ]; }; "
    "IFS= read -r c; c=${c#hvd:}; "
    "u=$(uname -sm); [ \"$u\" = \"Linux $m\" ] || no machine \"$u\"; "
    "case $c in "
    "\"\") c=${XDG_CACHE_HOME:-$HOME/.cache}/hvd;; "
    "\"~/\"*) c=$HOME/${c#??};; "
    "/*) ;; "
    "*) c=$HOME/$c;; "
    "esac; "
    "f=$c/agents/hvd-agent-$b; t=$f.$n.part; "
    // The owner of a directory can replace anything in it, even if it is sticky as /tmp; and every
    // user can if it is writable for all and not sticky. So the script checks each directory of the
    // path up to the home directory, which sshd trusts as well: the path as named, and the one that
    // its symbolic links lead to.
    "i=$(id -u 2>/dev/null); "
    "own() { p=$1; while :; do "
    "if [ -d \"$p\" ]; then "
    "k=\"-user 0\"; if [ -O \"$p/.\" ]; then k=; fi; "
    "[ -n \"$(find \"$p/.\" -prune $k \"(\" -perm -1000 -o -not -perm -0002 \")\")\" ] || "
    "no owner \"$p\"; "
    "if [ -L \"$p\" ]; then "
    "[ -n \"$(find \"$p\" -prune \"(\" -user 0 -o -user \"${i:-0}\" \")\")\" ] || "
    "no owner \"$p\"; fi; "
    "d=${d:-$p}; fi; "
    "case $p in / | \"$HOME\") break;; */*) p=${p%/*}; p=${p:-/};; *) break;; esac; "
    "done; }; "
    "d=; if command -v find >/dev/null 2>&1; then "
    "own \"$c\"; if [ -n \"$d\" ]; then own \"$(cd \"$d\" && pwd -P)\"; fi; fi; "
    "d=$c/agents; if [ -L \"$d\" ]; then no owner \"$d\"; fi; "
    "if [ -f \"$f\" ] && [ -x \"$f\" ] && [ -O \"$f\" ] && [ -O \"$d\" ] && same \"$f\"; then :; "
    "else "
    "e=$(umask 077; mkdir -p \"$d\" 2>&1) || no directory \"$e\"; "
    // The owner of the directory could replace the agent between its check and its start.
    "[ -O \"$d\" ] || no owner \"$d\"; "
    "e=$(chmod 700 \"$d\" 2>&1) || no directory \"$e\"; "
    "find \"$d\" -name \"hvd-agent-*\" -atime +30 -mtime +30 -exec rm -f {} + 2>/dev/null; "
    "find \"$d\" -name \"hvd-agent-*.part\" -mtime +1 -exec rm -f {} + 2>/dev/null; "
    "e=$( (umask 077; : >\"$t\") 2>&1) || no write \"$e\"; "
    "echo \"$n:need:\"; "
    // If the connection breaks during the copy, nothing else would end `head` for hours.
    "k=; timeout 900 true 2>/dev/null && k=\"timeout 900\"; "
    "e=$($k head -c \"$s\" 2>&1 >\"$t\") || { rm -f \"$t\"; no write \"$e\"; }; "
    "g=$(wc -c <\"$t\"); [ \"$g\" -eq \"$s\" ] || { rm -f \"$t\"; no size \"$g of $s bytes\"; }; "
    "if command -v sha256sum >/dev/null 2>&1; then same \"$t\" || { rm -f \"$t\"; no hash \"$h\"; "
    "}; "
    "fi; "
    "e=$(chmod 700 \"$t\" 2>&1 && mv -f \"$t\" \"$f\" 2>&1) || { rm -f \"$t\"; no write \"$e\"; }; "
    "fi; "
    // A file system mounted noexec, a missing permission or a wrong processor shows here.
    "e=$(\"$f\" --version 2>&1) || no execute \"$f: $e\"; "
    "echo \"$n:ok:\"; "
    "exec \"$f\"";

}  // namespace

std::string remote_command(const RemoteScript& script) {
  return cat("exec /bin/sh -c '", kScript, "' hvd ", script.nonce, " ", script.build_id, " ",
             script.hash, " ", script.size, " ", script.machine);
}

std::string first_line(const std::string& cache_directory) {
  // An SFTP server, which a host may start instead, reads the prefix as the length of a packet,
  // finds it too large, and gives up at once.
  return cat("hvd:", cache_directory, "\n");
}

std::string explain(std::string_view kind, std::string_view text) {
  if (kind == "directory") {
    return cat("cannot make the directory for the agent: ", text,
               ". Name another place with --agent-cache");
  }
  if (kind == "owner") {
    return cat(
        "the directory for the agent, ", text,
        ", belongs to another user or is writable for every user, so that others could replace the "
        "agent. Name another place with --agent-cache");
  }
  if (kind == "write") {
    return cat("cannot write the agent there: ", text,
               ". Make room, or name another place with --agent-cache");
  }
  if (kind == "size" || kind == "hash") {
    return cat("the copy of the agent is incomplete or damaged (", text, ")");
  }
  if (kind == "machine") {
    return cat("the host has another platform, ", text,
               ": the agent of this build cannot run there");
  }
  if (kind == "execute") {
    return cat("the agent cannot be executed there: ", text,
               ". Is that file system mounted noexec? Name another place with --agent-cache");
  }
  return cat("the remote script reports: ", kind, " ", text);
}

}  // namespace hvd::driver::ssh
