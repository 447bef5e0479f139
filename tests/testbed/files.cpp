#include "tests/testbed/files.h"

#include <fstream>
#include <set>
#include <sstream>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/text.h"
#include "tests/testbed/system.h"

namespace hvd::test::bed {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUserHome = "/home/hvduser";

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  return content.str();
}

// The names of all hosts of the bed; no other names are resolved.
std::string hosts_file(const Plan& plan) {
  std::string text;
  const auto line = [&](const std::string& address, const std::string& name) {
    text += cat(address, " ", name, "\n");
  };
  if (plan.options.ipv4) line("127.0.0.1", "localhost");
  if (plan.options.ipv6) line("::1", "localhost ip6-localhost");
  for (int number = 0; number <= plan.last(); ++number) {
    if (plan.options.ipv4) line(ipv4_of(number), name_of(number));
    if (plan.options.ipv6) line(ipv6_of(number), name_of(number));
  }
  return text;
}

constexpr const char* kNameServices =
    "passwd: files\ngroup: files\nshadow: files\nhosts: files\nnetworks: files\n"
    "protocols: files\nservices: files\n";

// The machine's table without the users that are ours to say, and with these.
std::string table_with(const fs::path& machine, const std::string& first,
                       const std::set<std::string>& replaced, const std::string& last) {
  std::string text = first;
  bool sshd = false;
  for (const auto& line : split(read_all(machine), '\n')) {
    const std::string name = line.substr(0, line.find(':'));
    sshd = sshd || name == "sshd";
    if (!line.empty() && replaced.count(name) == 0) text += line + "\n";
  }
  if (!sshd && machine == "/etc/passwd") {
    text += "sshd:x:5078:65534::/run/sshd:/usr/sbin/nologin\n";  // sshd's user before a login
  }
  return text + last;
}

std::string sshd_config(const Plan& plan) {
  // Of several lines that set the same, sshd takes the first.
  std::string text;
  bool sftp = false;
  for (const auto& setting : plan.options.sshd_settings) {
    text += setting + "\n";
    sftp = sftp || setting.starts_with("Subsystem");
  }
  text += cat("HostKey /etc/ssh/ssh_host_ed25519_key\nPidFile ", kSshdPidFile, "\n",
              "PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\n"
              "UseDNS no\nPrintMotd no\nPrintLastLog no\n");
  if (!sftp) text += "Subsystem sftp internal-sftp\n";
  return text;
}

void make_etc(const Plan& plan, int number, const fs::path& root) {
  const fs::path etc = root / "etc";
  const fs::path machine = root / ".etc";
  fs::create_directories(etc / "ssh");
  fs::create_directories(machine);
  bind_mount("/etc", machine, true);
  const std::string name = name_of(number);
  write_file(etc / "hostname", name + "\n");
  write_file(etc / "hosts", hosts_file(plan));
  write_file(etc / "nsswitch.conf", kNameServices);
  write_file(etc / "resolv.conf", "");
  const std::string user = cat(":x:", kUser, ":", kUser, ":ordinary user:", kUserHome);
  write_file(etc / "passwd", table_with("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n",
                                        {"root", "hvduser"}, cat("hvduser", user, ":/bin/bash\n")));
  write_file(etc / "group",
             table_with("/etc/group", "", {"hvduser"}, cat("hvduser:x:", kUser, ":\n")));
  // "*" is no password, but unlike "!" no lock either.
  write_file(etc / "shadow", "root:*:19000:0:99999:7:::\nhvduser:*:19000:0:99999:7:::\n", 0600);
  write_file(etc / "ssh/sshd_config", sshd_config(plan));
  for (const char* key : {"ssh_host_ed25519_key", "ssh_host_ed25519_key.pub"}) {
    fs::copy_file(plan.directory_of(number) / key, etc / "ssh" / key);
  }
  // Everything else is the machine's, as links: so that each host may change what it likes.
  const std::set<std::string> not_taken{"hostname", "hosts",   "nsswitch.conf", "resolv.conf",
                                        "passwd",   "passwd-", "group",         "group-",
                                        "shadow",   "shadow-", "gshadow",       "gshadow-",
                                        "ssh",      "mtab",    "ld.so.preload", "hvd"};
  for (const auto& entry : fs::directory_iterator("/etc")) {
    const std::string entry_name = entry.path().filename().string();
    if (not_taken.count(entry_name) == 0)
      fs::create_symlink("/.etc/" + entry_name, etc / entry_name);
  }
  fs::create_symlink("/proc/self/mounts", etc / "mtab");
}

void make_devices(const fs::path& root) {
  const fs::path dev = root / "dev";
  mount_empty(dev);
  for (const char* name : {"null", "zero", "full", "random", "urandom", "tty"}) {
    write_file(dev / name, "", 0666);
    bind_mount(fs::path("/dev") / name, dev / name);
  }
  fs::create_symlink("/proc/self/fd", dev / "fd");
  fs::create_symlink("/proc/self/fd/0", dev / "stdin");
  fs::create_symlink("/proc/self/fd/1", dev / "stdout");
  fs::create_symlink("/proc/self/fd/2", dev / "stderr");
  mount_empty(dev / "shm", "1777");
  fs::create_directories(dev / "pts");
  mount_at("devpts", dev / "pts", "devpts", MS_NOSUID | MS_NOEXEC,
           "newinstance,ptmxmode=0666,mode=620,gid=5");
  fs::create_symlink("pts/ptmx", dev / "ptmx");
}

// Programs and libraries: what the distribution installed, and nothing that somebody built.
void make_programs(const Plan& plan, const fs::path& root) {
  std::set<fs::path> taken;
  for (const char* name : {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}) {
    const fs::path there = fs::path("/") / name;
    if (fs::is_symlink(there)) {
      fs::copy_symlink(there, root / name);
    } else if (fs::is_directory(there)) {
      fs::create_directories(root / name);
      bind_mount(there, root / name, true);
      taken.insert(there);
    }
  }
  std::vector<fs::path> hidden{"/usr/local", "/usr/src", "/usr/libexec/hvd", "/usr/lib/hvd"};
  hidden.push_back(plan.source);
  hidden.push_back(plan.build);
  for (const auto& path : hidden) {
    const bool shows = taken.count("/" + (++path.begin())->string()) != 0;
    if (shows && fs::is_directory(path)) mount_empty(root / path.relative_path());
  }
  for (const char* name : {"hvdrun", "hvd-agent"}) {
    const fs::path program = fs::path("usr/bin") / name;
    if (fs::exists("/" / program)) bind_mount("/dev/null", root / program);
  }
}

void allow_key(const Plan& plan, const fs::path& home, uid_t owner) {
  const fs::path directory = home / ".ssh";
  const fs::path file = directory / "authorized_keys";
  fs::create_directories(directory);
  fs::copy_file(plan.key().string() + ".pub", file, fs::copy_options::overwrite_existing);
  ::chmod(directory.c_str(), 0700);
  ::chmod(file.c_str(), 0600);
  for (const auto& path : {home, directory, file}) {
    if (::chown(path.c_str(), owner, owner) != 0) throw_errno("chown " + path.string());
  }
}

void make_homes(const Plan& plan, int number, const fs::path& root) {
  fs::create_directories(root / "root");
  bind_mount(plan.directory_of(number) / "root", root / "root");
  const fs::path home = root / fs::path(kUserHome).relative_path();
  fs::create_directories(home);
  ::chmod(home.c_str(), 0755);
  allow_key(plan, home, kUser);
}

void move_to(const fs::path& root) {
  if (::chdir(root.c_str()) != 0) throw_errno("chdir " + root.string());
  if (::syscall(SYS_pivot_root, ".", ".") != 0) throw_errno("pivot_root");
  if (::umount2(".", MNT_DETACH) != 0) throw_errno("umount the machine's files");
  if (::chdir("/") != 0) throw_errno("chdir /");
}

}  // namespace

void make_host_files(const Plan& plan, int number) {
  const fs::path root = plan.directory_of(number) / "mnt";
  mount_empty(root);
  make_programs(plan, root);
  make_etc(plan, number, root);
  make_devices(root);
  make_homes(plan, number, root);
  mount_empty(root / "tmp", "1777");
  mount_empty(root / "run");
  fs::create_directories(root / "run/sshd");
  for (const char* name : {"mnt", "opt", "srv", "var/empty", "var/log", "var/lib", "var/cache"}) {
    fs::create_directories(root / name);
  }
  fs::create_symlink("/run", root / "var/run");
  fs::create_directories(root / "var/tmp");
  ::chmod((root / "var/tmp").c_str(), 01777);
  for (const char* name : {"proc", "sys"}) fs::create_directories(root / name);
  mount_at("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC);
  mount_at("sysfs", root / "sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY);
  move_to(root);
}

void make_head_files(const Plan& plan) {
  const fs::path directory = plan.directory_of(kHead);
  const fs::path home = directory / "root";
  // Where these lie in /root they stay visible: hvdrun is started from there.
  std::vector<fs::path> kept;
  for (const auto& path : {plan.source, plan.build}) {
    const auto from_root = path.lexically_relative("/root");
    const bool inside = !from_root.empty() && *from_root.begin() != "..";
    if (!inside || !fs::is_directory(path)) continue;
    fs::create_directories(home / from_root);
    bind_mount(path, home / from_root);
  }
  bind_mount(home, "/root");
  write_file(directory / "hosts", hosts_file(plan));
  write_file(directory / "nsswitch.conf", kNameServices);
  for (const char* name : {"hosts", "nsswitch.conf"}) {
    const fs::path there = fs::path("/etc") / name;
    if (fs::exists(there)) bind_mount(directory / name, there);
  }
  mount_empty("/dev/shm", "1777");
  mount_at("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC);
}

void make_keys(const Plan& plan) {
  run_program({.arguments = {"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test bed", "-f",
                             plan.key().string()}});
  // One process makes the keys of all hosts: a shell is the cheapest way to start them at a time.
  std::string script;
  for (int number = 0; number <= plan.last(); ++number) {
    const fs::path home = plan.directory_of(number) / "root";
    fs::create_directories(home);
    ::chmod(home.c_str(), 0700);
    if (number == kHead) continue;
    allow_key(plan, home, 0);
    script +=
        cat("ssh-keygen -q -t ed25519 -N '' -C ", name_of(number), " -f ",
            shell_quote((plan.directory_of(number) / "ssh_host_ed25519_key").string()), " &\n");
  }
  run_program({.arguments = {"sh", "-c", script + "wait"}});
}

void make_head_login(const Plan& plan) {
  const fs::path directory = plan.directory_of(kHead) / "root/.ssh";
  fs::create_directories(directory);
  ::chmod(directory.c_str(), 0700);
  if (plan.options.head_may_log_in) {
    fs::copy_file(plan.key(), directory / "id_ed25519");
    fs::copy_file(plan.key().string() + ".pub", directory / "id_ed25519.pub");
  }
  if (!plan.options.head_knows_hosts) return;
  std::string known;
  for (int number = 1; number <= plan.last(); ++number) {
    const auto key = read_all(plan.directory_of(number) / "ssh_host_ed25519_key.pub");
    std::vector<std::string> names{name_of(number)};
    if (plan.options.ipv4) names.push_back(ipv4_of(number));
    if (plan.options.ipv6) names.push_back(ipv6_of(number));
    known += cat(join(names, ","), " ", trim(key), "\n");
  }
  write_file(directory / "known_hosts", known, 0600);
}

std::string read_log(const fs::path& path) { return read_all(path); }

}  // namespace hvd::test::bed
