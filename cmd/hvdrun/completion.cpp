#include "base/text.h"
#include "cmd/hvdrun/flag_table.h"

namespace hvd::cli {
namespace {

// The kinds of candidates that a shell can offer for a value.
enum class Offer { nothing, files, directories, programs, choices };

Offer offer_for(const Flag& flag) {
  if (!flag.choices().empty()) return Offer::choices;
  if (flag.placeholder == "FILE") return Offer::files;
  if (flag.placeholder == "DIR") return Offer::directories;
  if (flag.placeholder == "PROGRAM") return Offer::programs;
  return Offer::nothing;
}

std::string table_name(const FlagTable& table) {
  return table.subcommand.empty() ? "main" : table.subcommand;
}

// Each of `special` in `text` gets a backslash before it.
std::string escaped(std::string_view text, std::string_view special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

// All places of `mark`.
std::string replaced(std::string text, std::string_view mark, std::string_view by) {
  for (auto at = text.find(mark); at != std::string::npos; at = text.find(mark, at + by.size())) {
    text.replace(at, mark.size(), by);
  }
  return text;
}

// "rendezvous agent"
std::string subcommands(const std::vector<FlagTable>& tables) {
  std::vector<std::string> names;
  for (const FlagTable& table : tables) {
    if (!table.subcommand.empty()) names.push_back(table.subcommand);
  }
  return join(names, " ");
}

// ---- bash --------------------------------------------------------------------------------------

// The script does without the package bash-completion, but where that is loaded it completes the
// program's own arguments.
constexpr const char* kBashCode = R"(
# Sets `values`, the number of values that flag $2 of table $1 takes, and `offer`.
_hvdrun_value() {
  values=1 offer=nothing
  case "$1 $2" in
@VALUES@
    *) values=0 ;;
  esac
}

_hvdrun_offer() {
  case $offer in
    files) mapfile -t COMPREPLY < <(compgen -f -- "$1") ;;
    directories) mapfile -t COMPREPLY < <(compgen -d -- "$1") ;;
    programs) mapfile -t COMPREPLY < <(compgen -c -- "$1"; compgen -f -- "$1") ;;
    nothing) return ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$offer" -- "$1") ;;
  esac
  compopt -o filenames 2>/dev/null
}

_hvdrun() {
  local table=main values offer word at=1
  local current=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=()
  if ((COMP_CWORD > 1)) && [[ " @COMMANDS@ " == *" ${COMP_WORDS[1]} "* ]]; then
    table=${COMP_WORDS[1]} at=2
  fi

  # Passes over flags and their values up to the current word. Bash has split words at '=' and ':'.
  while ((at < COMP_CWORD)); do
    word=${COMP_WORDS[at]}
    if [[ $word != -?* || $word == -- ]]; then
      [[ $table == main ]] || return
      [[ $word == -- ]] && ((++at))
      if declare -F _command_offset >/dev/null; then
        _command_offset "$at"
      else
        offer=files
        _hvdrun_offer "$current"
      fi
      return
    fi
    _hvdrun_value "$table" "$word"
    ((++at))
    if [[ ${COMP_WORDS[at]} == '=' ]]; then
      values=1
      ((at == COMP_CWORD)) && current=
      ((at < COMP_CWORD)) && ((++at))
    fi
    while ((values > 0 && at < COMP_CWORD)); do
      ((++at, --values))
      while ((at <= COMP_CWORD)) &&
        [[ ${COMP_WORDS[at]} == [:=]* || ${COMP_WORDS[at - 1]} == *[:=] ]]; do
        ((++at))
      done
    done
    ((at > COMP_CWORD)) && return
    if ((values > 0)); then
      _hvdrun_offer "$current"
      return
    fi
  done

  if [[ $current == -* ]]; then
    case $table in
@FLAGS@
    esac
    _hvdrun_offer "$current"
  elif [[ $table == main ]]; then
    offer=programs
    _hvdrun_offer "$current"
    ((COMP_CWORD == 1)) && COMPREPLY+=($(compgen -W '@COMMANDS@' -- "$current"))
  fi
}
complete -F _hvdrun hvdrun
)";

std::string bash_offer(const Flag& flag) {
  switch (offer_for(flag)) {
    case Offer::files:
      return "files";
    case Offer::directories:
      return "directories";
    case Offer::programs:
      return "programs";
    case Offer::choices:
      return cat("'", join(flag.choices(), " "), "'");
    case Offer::nothing:
      break;
  }
  return "nothing";
}

std::string bash_script(const std::vector<FlagTable>& tables) {
  std::vector<std::string> values;
  std::vector<std::string> flags;
  for (const FlagTable& table : tables) {
    std::vector<std::string> names;
    for (const Flag& flag : table.flags) {
      names.insert(names.end(), flag.names.begin(), flag.names.end());
      if (flag.placeholder.empty() || flag.value_is_optional()) continue;
      std::vector<std::string> patterns;
      for (const auto& name : flag.names)
        patterns.push_back(cat("'", table_name(table), " ", name, "'"));
      values.push_back(cat("    ", join(patterns, " | "), ") ", flag.takes_two() ? "values=2 " : "",
                           "offer=", bash_offer(flag), " ;;"));
    }
    flags.push_back(cat("      ", table_name(table), ") offer='", join(names, " "), "' ;;"));
  }

  const std::string code = replaced(kBashCode, "@VALUES@", join(values, "\n"));
  const std::string script = replaced(code, "@FLAGS@", join(flags, "\n"));
  return cat("# Completion of hvdrun for bash.\n",
             replaced(script, "@COMMANDS@", subcommands(tables)));
}

// ---- zsh ---------------------------------------------------------------------------------------

constexpr const char* kZshCode = R"(
_hvdrun() {
  local curcontext=$curcontext state line
  typeset -A opt_args
  local -a specs

  if ((CURRENT > 2)) && [[ " @COMMANDS@ " == *" $words[2] "* ]]; then
    shift words
    ((CURRENT--))
    specs=_hvdrun_$words[1]
    _arguments -S : "${(@P)specs}"
    return
  fi

  _arguments -C -S : "${_hvdrun_main[@]}" '(-)1:program:->program' '*:: :_normal' && return
  if [[ $state == program ]]; then
    _alternative 'subcommands:subcommand:(@COMMANDS@)' 'commands:program:_command_names -e' \
      'files:program:_files'
  fi
}

_hvdrun "$@"
)";

std::string zsh_action(const Flag& flag) {
  switch (offer_for(flag)) {
    case Offer::files:
      return "_files";
    case Offer::directories:
      return "_files -/";
    case Offer::programs:
      return "_command_names -e";
    case Offer::choices:
      return cat("(", join(flag.choices(), " "), ")");
    case Offer::nothing:
      break;
  }
  return " ";
}

// A name of a flag as _arguments takes it, in single quotes.
std::string zsh_spec(const Flag& flag, const std::string& name) {
  std::string spec = "*" + name;
  // With '=' the value may stand in the same word or in the next one.
  if (!flag.placeholder.empty() && !flag.takes_two()) spec += "=";
  spec += cat("[", escaped(flag.help, "[]\\"), "]");
  for (const auto& value : split(flag.placeholder, flag.takes_two() ? ' ' : '\0')) {
    const char* const colon = flag.value_is_optional() ? "::" : ":";
    if (!value.empty()) spec += cat(colon, escaped(value, ":\\"), ":", zsh_action(flag));
  }

  std::string quoted = "'";
  for (const char c : spec) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string zsh_script(const std::vector<FlagTable>& tables) {
  std::string script = "#compdef hvdrun\n# Completion of hvdrun for zsh.\n";
  for (const FlagTable& table : tables) {
    script += cat("\n_hvdrun_", table_name(table), "=(\n");
    for (const Flag& flag : table.flags) {
      for (const auto& name : flag.names) script += cat("  ", zsh_spec(flag, name), "\n");
    }
    script += ")\n";
  }
  return script + replaced(kZshCode, "@COMMANDS@", subcommands(tables));
}

// ---- fish --------------------------------------------------------------------------------------

constexpr const char* kFishCode = R"(
# True if a flag of `wanted`, which is main or a subcommand, can stand at the cursor.
function __hvdrun_at --argument-names wanted
    set -l tokens (commandline -opc)
    set -e tokens[1]
    if test (count $tokens) -gt 0; and contains -- $tokens[1] @COMMANDS@
        test $tokens[1] = $wanted
        return
    end
    test $wanted = main; or return 1
    set -l values 0
    for token in $tokens
        if test $values -gt 0
            set values (math $values - 1)
        else if contains -- $token $__hvdrun_two_values
            set values 2
        else if contains -- $token $__hvdrun_one_value
            set values 1
        else if not string match -q -- '-?*' $token; or test $token = --
            return 1
        end
    end
    return 0
end

complete -c hvdrun -n '__hvdrun_at main' -a '(__fish_complete_command)'
)";

std::string fish_quoted(std::string_view text) { return cat("'", escaped(text, "'\\"), "'"); }

std::string fish_value(const Flag& flag) {
  switch (offer_for(flag)) {
    case Offer::files:
      return " -r -F";
    case Offer::directories:
      return " -x -a '(__fish_complete_directories)'";
    case Offer::programs:
      return " -r -F -a '(__fish_complete_command)'";
    case Offer::choices:
      return cat(" -x -a ", fish_quoted(join(flag.choices(), " ")));
    case Offer::nothing:
      break;
  }
  return flag.placeholder.empty() || flag.value_is_optional() ? "" : " -x";
}

// "--num-proc" is -l num-proc, "-np" is -o np, "-H" is -s H.
std::string fish_name(std::string_view name) {
  if (name.starts_with("--")) return cat("-l ", name.substr(2));
  return cat(name.size() == 2 ? "-s " : "-o ", name.substr(1));
}

std::string fish_script(const std::vector<FlagTable>& tables) {
  std::string one;
  std::string two;
  std::string flags;
  for (const FlagTable& table : tables) {
    for (const Flag& flag : table.flags) {
      for (const auto& name : flag.names) {
        flags += cat("complete -c hvdrun -n '__hvdrun_at ", table_name(table), "' ",
                     fish_name(name), fish_value(flag), " -d ", fish_quoted(flag.help), "\n");
        if (flag.placeholder.empty() || flag.value_is_optional() || !table.subcommand.empty())
          continue;
        (flag.takes_two() ? two : one) += " " + name;
      }
    }
  }
  for (const FlagTable& table : tables) {
    if (table.subcommand.empty()) continue;
    flags += cat("complete -c hvdrun -n __fish_is_first_token -a ", table.subcommand, " -d ",
                 fish_quoted(table.description), "\ncomplete -c hvdrun -n '__hvdrun_at ",
                 table.subcommand, "' -f\n");
  }
  return cat("# Completion of hvdrun for fish.\nset -g __hvdrun_one_value", one,
             "\nset -g __hvdrun_two_values", two, "\n",
             replaced(kFishCode, "@COMMANDS@", subcommands(tables)), flags);
}

}  // namespace

Result<std::string> completion_script(std::string_view shell,
                                      const std::vector<FlagTable>& tables) {
  if (shell == "bash") return bash_script(tables);
  if (shell == "zsh") return zsh_script(tables);
  if (shell == "fish") return fish_script(tables);
  return Status(Code::invalid_argument,
                cat("--print-completion ", shell, ": must be bash, zsh or fish"));
}

}  // namespace hvd::cli
