#include <algorithm>
#include <cctype>
#include <string_view>

#include <hvd/version.h>

#include "base/text.h"
#include "cmd/hvdrun/flag_table.h"
#include "cmd/hvdrun/settings.h"

namespace hvd::cli {
namespace {

constexpr const char* kIntroduction = R"(.SH NAME
hvdrun \- run a program as workers that train together
.SH SYNOPSIS
.B hvdrun
.RI [ options ] " program " [ arguments ]
.br
.B hvdrun rendezvous \-\-bind
.IR ADDRESS : PORT
.RI [ options ]
.br
.B hvdrun agent \-\-join
.RI tls:// ADDRESS : PORT
.RI [ options ]
.br
.B hvdrun jobs
.RI [ options ]
.br
.B hvdrun status
.RI [ JOB ]
.RI [ options ]
.br
.B hvdrun top
.RI [ JOB ]
.br
.B hvdrun metrics
.RI [ JOB ]
.br
.B hvdrun page
.RI [ JOB ]
.br
.B hvdrun dump
.RI [ JOB ]
.br
.B hvdrun stop
.RI [ JOB ]
.br
.B hvdrun drain
.RB [ \-\-undo ]
.IR HOST [# SLOT ]
.RI [ JOB ]
.br
.B hvdrun scale
.I N
.RI [ JOB ]
.br
.B hvdrun token
.BR new | list | "revoke \fIID\fP" | "rotate \fIID\fP"
.RI [ JOB ]
.RI [ options ]
.br
.B hvdrun replay
.I FILE
.br
.B hvdrun compare
.I LEDGER LEDGER
.SH DESCRIPTION
.B hvdrun
starts one program as several workers, on this machine and on others, shows what they print, and
ends when they have ended.
The command begins at the first argument that is not an option;
.B \-\-
ends the options explicitly.
.PP
A host other than this machine is reached through SSH, or joins by itself with
.BR "hvdrun agent" .
With
.BR \-\-host\-discovery\-script ,
.BR \-\-min\-np ,
.B \-\-max\-np
or
.B \-\-max\-restarts
the job is elastic: workers may come and go while it runs.
)";

constexpr const char* kExitStatus = R"(.SH EXIT STATUS
.TP
.B 0
All workers have succeeded.
.TP
.B 1
An error before or around the job: a config file, a host that cannot take part, a full disk.
.TP
.B 2
An invalid command line.
.TP
.BR 126 ", " 127
The program cannot be executed, or does not exist.
.TP
.BR 129 ", " 130 ", " 131 ", " 143
The job was stopped by SIGHUP, SIGINT, SIGQUIT or SIGTERM.
.TP
.B 141
The reader of standard output has gone.
.TP
.I other
The exit code of the first worker that failed, or 128 plus the number of the signal that ended it.
.SH FILES
.TP
.I ./hvd\-token
The shared secret of
.B \-\-join\-bind
and of the subcommands, unless
.B \-\-token\-file
names another file.
.TP
.I ./hvd\-metrics\-token
The token of
.BR \-\-metrics\-bind ,
unless
.B \-\-metrics\-token\-file
names another file.
.TP
.IR ~/.ssh/config ", " ~/.ssh/known_hosts
Read as
.BR ssh (1)
reads them.
.TP
.I ~/.cache/hvd
Agents that hvdrun has copied to a host.
.SH EXAMPLES
.EX
hvdrun \-np 4 ./train text.txt
hvdrun \-np 16 \-H a:4,b:4 ./train text.txt
hvdrun \-\-hostfile hosts.txt \-\-output\-filename logs ./train text.txt
hvdrun \-\-host\-discovery\-script ./discover.sh ./train text.txt
.EE
.SH SEE ALSO
.BR ssh (1),
.BR ssh_config (5)
)";

// Text for troff. A line must not begin with a control character.
std::string troff(std::string_view text) {
  std::string result = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) {
    if (c == '-') {
      result += "\\-";
    } else if (c == '\\') {
      result += "\\e";
    } else if (c == '\'') {
      result += "\\(aq";
    } else if (c == '~') {
      result += "\\(ti";
    } else {
      result += c;
    }
  }
  return result;
}

// ".BR" would take blanks for the ends of its arguments: fonts are switched within the line.
std::string flags_text(const FlagTable& table) {
  std::string text;
  std::string group;
  for (const Flag& flag : table.flags) {
    if (table.subcommand.empty() && flag.group != group)
      text += cat(".SS ", troff(flag.group), "\n");
    group = flag.group;

    text += ".TP\n";
    std::vector<std::string> names;
    for (const auto& name : flag.names) names.push_back(cat("\\fB", troff(name), "\\fR"));
    text += join(names, ", ");
    if (!flag.placeholder.empty()) text += cat(" \\fI", troff(flag.placeholder), "\\fR");
    text += cat("\n", troff(flag.help), "\n");
  }
  return text;
}

// CLI11 keeps options in the order of their definition: those of a group need not stand together.
FlagTable grouped(const FlagTable& table) {
  FlagTable result{table.subcommand, table.description, {}};
  std::vector<std::string> groups;
  for (const Flag& flag : table.flags) {
    if (std::find(groups.begin(), groups.end(), flag.group) == groups.end()) {
      groups.push_back(flag.group);
    }
  }
  for (const auto& group : groups) {
    for (const Flag& flag : table.flags) {
      if (flag.group == group) result.flags.push_back(flag);
    }
  }
  return result;
}

// Variables and keys of the config file beside each setting.
std::string settings_text() {
  std::string text =
      ".SH ENVIRONMENT AND CONFIG FILE\n"
      "A flag overrides the config file, which overrides the environment. Sections and keys of the "
      "config file, which is YAML, are written here as\n.IR section . key .\n";
  for (const Knob* const setting : all_settings()) {
    text += cat(".TP\n\\fB\\-\\-", troff(setting->flag), "\\fR\n", troff(setting->config_key));
    for (const auto variable : {setting->variable, setting->horovod_name}) {
      if (!variable.empty()) text += cat(", \\fB", troff(variable), "\\fR");
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::string man_page(const std::vector<FlagTable>& tables) {
  std::string text =
      cat(".TH HVDRUN 1 \"\" \"hvd ", HVD_VERSION_STRING, "\" \"User Commands\"\n", kIntroduction);
  for (const FlagTable& table : tables) {
    if (table.subcommand.empty()) {
      text += ".SH OPTIONS\n";
    } else {
      std::string name = table.subcommand;
      std::transform(name.begin(), name.end(), name.begin(), [](const unsigned char letter) {
        return static_cast<char>(std::toupper(letter));
      });
      text += cat(".SH HVDRUN ", name, "\n", troff(table.description), "\n");
    }
    text += flags_text(grouped(table));
  }
  return text + settings_text() + kExitStatus;
}

}  // namespace hvd::cli
