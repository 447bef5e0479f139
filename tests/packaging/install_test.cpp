// Installs this build into a temporary folder and uses it there as a user would.
#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <string_view>

#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

constexpr const char* kConsumer = HVD_SOURCE_DIR "/tests/packaging/consumer";

ExitStatus expect_success(const std::vector<std::string>& command,
                          const ProcessOptions& options = {}) {
  ExitStatus end = run(command, options, std::chrono::minutes(4));
  EXPECT_EQ(end.code, 0) << join(command, " ") << "\n" << end.out << end.err;
  return end;
}

// HVD_CMAKE, HVD_BUILD_DIR, HVD_GENERATOR, HVD_C, HVD_CXX, HVD_CXX_FLAGS: from tests.cmake.
class InstallTest : public testing::Test {
 protected:
  void SetUp() override {
    expect_success({HVD_CMAKE, "--install", HVD_BUILD_DIR, "--prefix", prefix()});
  }

  std::string prefix() const { return directory_.path() / "prefix"; }
  std::string path(const std::string& name) const { return directory_.path() / name; }

  ExitStatus expect_success(const std::vector<std::string>& command,
                            const std::map<std::string, std::string>& environment = {}) const {
    ProcessOptions options;
    options.environment = environment;
    options.working_directory = directory_.path();
    return test::expect_success(command, options);
  }

  std::string library_folder() const { return prefix() + "/" HVD_INSTALL_LIBDIR; }

  void expect_it_runs(const std::string& program) const {
    const std::map<std::string, std::string> environment = {{"LD_LIBRARY_PATH", library_folder()}};
    EXPECT_EQ(expect_success({program}, environment).out, "consumer 0 of 1\n");
    const ExitStatus pair =
        expect_success({prefix() + "/bin/hvdrun", "-np", "2", program}, environment);
    EXPECT_NE(pair.out.find("[0]<stdout>:consumer 0 of 2\n"), std::string::npos) << pair.out;
    EXPECT_NE(pair.out.find("[1]<stdout>:consumer 1 of 2\n"), std::string::npos) << pair.out;
  }

  // Where nothing of ours is installed: without a folder of libraries to look in.
  void expect_it_needs_no_library_of_ours(const std::string& program) const {
    EXPECT_EQ(expect_success({program}).out, "consumer 0 of 1\n");
    const ExitStatus pair = expect_success({prefix() + "/bin/hvdrun", "-np", "2", program});
    EXPECT_NE(pair.out.find("[1]<stdout>:consumer 1 of 2\n"), std::string::npos) << pair.out;
    const ExitStatus libraries = expect_success({"ldd", program});
    EXPECT_EQ(libraries.out.find("hvd"), std::string::npos) << libraries.out;
  }

  // Without their versions.
  std::set<std::string> symbols(const std::string& which, const std::string& library) const {
    const auto listed = expect_success({"nm", which, "--defined-only", "--format=posix", library});
    std::set<std::string> names;
    for (const auto& line : split(listed.out, '\n')) {
      const std::string name = line.substr(0, line.find_first_of(" @"));
      const bool heading = line.ends_with(':');  // of a member of an archive
      if (!name.empty() && !heading && !name.starts_with("HVD_")) names.insert(name);
    }
    return names;
  }

  // `source` in C or C++, by the compiler of that language alone.
  void compile(const std::string& package, const std::string& prefix_now,
               const std::string& program, const std::string& source = "consumer.cpp") const {
    const ExitStatus flags =
        expect_success({"pkg-config", "--cflags", "--libs", package},
                       {{"PKG_CONFIG_PATH", prefix_now + "/" HVD_INSTALL_LIBDIR "/pkgconfig"}});
    EXPECT_NE(flags.out.find(prefix_now), std::string::npos) << flags.out;
    const bool c = source.ends_with(".c");
    std::vector<std::string> command{c ? HVD_C : HVD_CXX, c ? "-std=c11" : "-std=c++20", "-o",
                                     program, std::string(kConsumer) + "/" + source};
    for (const auto& list : {std::string(HVD_CXX_FLAGS), std::string(trim(flags.out))}) {
      for (const auto& word : split(list, ' ')) {
        if (!word.empty()) command.push_back(word);
      }
    }
    expect_success(command);
  }

 private:
  TemporaryDirectory directory_;
};

TEST_F(InstallTest, EverythingIsWherePeopleLookForIt) {
  for (const char* const name :
       {"bin/hvdrun", "libexec/hvd/hvd-agent", "include/hvd/hvd.h", "include/hvd/types.h",
        "share/doc/hvd/LICENSE", "share/man/man1/hvdrun.1",
        "share/bash-completion/completions/hvdrun", "share/zsh/site-functions/_hvdrun",
        "share/fish/vendor_completions.d/hvdrun.fish"}) {
    EXPECT_TRUE(std::filesystem::exists(prefix() + "/" + name)) << name;
  }
  // Only what a worker includes: no header of the rooms behind it.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(prefix() + "/include")) {
    if (!entry.is_regular_file()) continue;
    EXPECT_EQ(entry.path().parent_path(), prefix() + "/include/hvd");
    const std::string text = read_file(entry.path());
    EXPECT_EQ(text.find("#include \""), std::string::npos) << entry.path();
  }
  // Nothing of the machine that built it.
  for (const char* const name : {"/pkgconfig/hvd.pc", "/pkgconfig/hvd-static.pc",
                                 "/cmake/hvd/hvd-config.cmake", "/cmake/hvd/hvd-targets.cmake"}) {
    const std::string text = read_file(library_folder() + name);
    EXPECT_FALSE(text.empty()) << name;
    EXPECT_EQ(text.find(HVD_SOURCE_DIR), std::string::npos) << name;
    EXPECT_EQ(text.find(HVD_BUILD_DIR), std::string::npos) << name;
  }
}

TEST_F(InstallTest, AnAgentThatCannotBeExecutedIsNotSaidToBeMissing) {
  const std::string agent = prefix() + "/libexec/hvd/hvd-agent";
  std::filesystem::permissions(agent, std::filesystem::perms(0644));
  const ExitStatus end = run({prefix() + "/bin/hvdrun", "-np", "1", "/bin/true"});
  EXPECT_EQ(end.code, 1);
  EXPECT_NE(end.err.find(agent + " exists, but cannot be executed: Permission denied"),
            std::string::npos)
      << end.err;
}

TEST_F(InstallTest, NightlyEachHeaderCompilesByItself) {
  // Those of torch.h need LibTorch, with which each takes long: it includes the others.
  constexpr std::string_view kLibTorch = HVD_LIBTORCH_INCLUDE_DIR;  // or none
  int headers = 0;
  for (const auto& entry : std::filesystem::directory_iterator(prefix() + "/include/hvd")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("torch") && (kLibTorch == "none" || name != "torch.h")) continue;
    std::vector<std::string> command{HVD_CXX,
                                     "-std=c++20",
                                     "-fsyntax-only",
                                     "-Wall",
                                     "-Wextra",
                                     "-Wshadow",
                                     "-Wpedantic",
                                     "-Werror",
                                     "-I",
                                     prefix() + "/include",
                                     "-include",
                                     entry.path(),
                                     "-x",
                                     "c++",
                                     "/dev/null"};
    if (name == "torch.h") {
      command.insert(command.end(), {"-isystem", cat(kLibTorch, "/torch/csrc/api/include")});
    }
    expect_success(command);
    ++headers;
  }
  EXPECT_GE(headers, 10);
}

TEST_F(InstallTest, HvdNeedsNoFramework) {
  const std::string all =
      expect_success({HVD_CXX, "-std=c++20", "-M", "-I", prefix() + "/include", "-include",
                      prefix() + "/include/hvd/hvd.h", "-x", "c++", "/dev/null"})
          .out;
  EXPECT_NE(all.find("/hvd/collectives.h"), std::string::npos) << all;
  EXPECT_EQ(all.find("torch"), std::string::npos) << all;
  const std::string libraries = expect_success({"ldd", library_folder() + "/libhvd.so"}).out;
  EXPECT_EQ(libraries.find("torch"), std::string::npos) << libraries;
}

// Such a program would compile, and hvd would misread its containers.
TEST_F(InstallTest, AnotherLayoutOfTheStandardLibraryIsRefused) {
  for (const std::string setting : {"_GLIBCXX_USE_CXX11_ABI=0", "_GLIBCXX_DEBUG"}) {
    for (const auto& entry : std::filesystem::directory_iterator(prefix() + "/include/hvd")) {
      // These need LibTorch, and include others.
      if (entry.path().filename().string().starts_with("torch")) continue;
      const std::string header = read_file(entry.path());
      const bool concerned = header.find("#include <string>") != std::string::npos ||
                             header.find("#include <vector>") != std::string::npos ||
                             entry.path().filename() == "standard_library.h";
      const ExitStatus compiled =
          run({HVD_CXX, "-std=c++20", "-E", "-D" + setting, "-I", prefix() + "/include", "-include",
               entry.path(), "-x", "c++", "-o", "/dev/null", "/dev/null"});
      const bool refused = compiled.err.find("#error \"hvd: " + setting) != std::string::npos;
      EXPECT_EQ(refused, concerned) << entry.path() << "\n" << compiled.err;
      EXPECT_EQ(compiled.code != 0, refused) << entry.path() << "\n" << compiled.err;
    }
  }
}

// The test reads the commands of the build and does not run them: building libhvd takes minutes.
TEST(BuildTest, WithoutTheLauncherItsPackagesAreNotNeeded) {
  const TemporaryDirectory directory;
  const std::string build = directory.path() / "build";
  expect_success({HVD_CMAKE, "-G", "Ninja", "-S", HVD_SOURCE_DIR, "-B", build,
                  "-DHVD_BUILD_LAUNCHER=OFF", "-DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON",
                  "-DCMAKE_DISABLE_FIND_PACKAGE_yaml-cpp=ON",
                  std::string("-DCMAKE_CXX_COMPILER=") + HVD_CXX});
  const std::string commands = expect_success({"ninja", "-C", build, "-t", "commands", "all"}).out;
  EXPECT_NE(commands.find("libhvd.so"), std::string::npos);
  EXPECT_NE(commands.find("libhvd_static.a"), std::string::npos);
  for (const char* const part : {"hvdrun", "hvd-agent", "/driver/", "/discovery/", "libssh"}) {
    EXPECT_EQ(commands.find(part), std::string::npos) << part;
  }
}

TEST_F(InstallTest, AProjectFindsItWithFindPackage) {
  expect_success({HVD_CMAKE, "-G", HVD_GENERATOR, "-S", kConsumer, "-B", path("built"),
                  "-DCMAKE_PREFIX_PATH=" + prefix(), std::string("-DCMAKE_CXX_COMPILER=") + HVD_CXX,
                  std::string("-DCMAKE_CXX_FLAGS=") + HVD_CXX_FLAGS});
  expect_success({HVD_CMAKE, "--build", path("built")});
  expect_it_runs(path("built/consumer"));
  expect_it_needs_no_library_of_ours(path("built/consumer_static"));
}

TEST_F(InstallTest, AComponentIsRefusedWithAReason) {
  std::filesystem::create_directory(path("asks"));
  std::ofstream(path("asks/CMakeLists.txt"))
      << "cmake_minimum_required(VERSION 3.25)\nproject(asks LANGUAGES CXX)\n"
         "find_package(hvd REQUIRED COMPONENTS cuda static)\n";
  const ExitStatus end =
      run({HVD_CMAKE, "-G", HVD_GENERATOR, "-S", path("asks"), "-B", path("built"),
           "-DCMAKE_PREFIX_PATH=" + prefix(), std::string("-DCMAKE_CXX_COMPILER=") + HVD_CXX});
  EXPECT_NE(end.code, 0);
  EXPECT_NE(end.err.find("hvd has no components, and cannot find: cuda, static"), std::string::npos)
      << end.err;
}

TEST_F(InstallTest, AProjectInCAloneFindsItWithFindPackage) {
  expect_success({HVD_CMAKE, "-G", HVD_GENERATOR, "-S", std::string(kConsumer) + "_c", "-B",
                  path("built"), "-DCMAKE_PREFIX_PATH=" + prefix(),
                  std::string("-DCMAKE_C_COMPILER=") + HVD_C,
                  std::string("-DCMAKE_C_FLAGS=") + HVD_CXX_FLAGS});
  expect_success({HVD_CMAKE, "--build", path("built")});
  expect_it_runs(path("built/consumer"));
  expect_it_needs_no_library_of_ours(path("built/consumer_static"));
}

TEST_F(InstallTest, TheExamplesInCAreBuiltInAFolderWithASpace) {
  if (!std::string(HVD_CXX_FLAGS).empty()) GTEST_SKIP() << "an example is not instrumented";
  const std::string spaced = path("of mine");
  std::filesystem::rename(prefix(), spaced);
  std::filesystem::copy(HVD_SOURCE_DIR "/examples/c", path("c"));
  expect_success({"make", "-C", path("c"), std::string("CC=") + HVD_C, "HVD=" + spaced, "average"});
}

// It has threads, and handlers for the end of the process.
TEST_F(InstallTest, AProcessThatUnloadsItEndsWell) {
  if (!std::string(HVD_CXX_FLAGS).empty()) GTEST_SKIP() << "python3 is not instrumented";
  expect_success({"/usr/bin/python3", "-c",
                  "import ctypes, _ctypes, sys\n"
                  "library = ctypes.CDLL(sys.argv[1])\n"
                  "assert library.hvd_init(None) == 0 and library.hvd_shutdown() == 0\n"
                  "_ctypes.dlclose(library._handle)\n",
                  library_folder() + "/libhvd.so"});
}

TEST_F(InstallTest, ACompilerFindsItWithPkgConfigAlsoAfterTheTreeMoved) {
  const std::string moved = path("elsewhere");
  std::filesystem::rename(prefix(), moved);
  std::filesystem::create_directory_symlink(moved, prefix());
  compile("hvd", moved, path("consumer"));
  expect_it_runs(path("consumer"));
  compile("hvd-static", moved, path("consumer_static"));
  expect_it_needs_no_library_of_ours(path("consumer_static"));
}

TEST_F(InstallTest, ACCompilerLinksWhatPkgConfigSays) {
  compile("hvd", prefix(), path("consumer"), "consumer.c");
  expect_it_runs(path("consumer"));
  compile("hvd-static", prefix(), path("consumer_static"), "consumer.c");
  expect_it_needs_no_library_of_ours(path("consumer_static"));
}

TEST_F(InstallTest, NightlyAProgramMayUseBoostItself) {
  compile("hvd", prefix(), path("asio"), "asio.cpp");
  expect_it_runs(path("asio"));
  compile("hvd-static", prefix(), path("asio_static"), "asio.cpp");
  expect_it_needs_no_library_of_ours(path("asio_static"));
}

TEST_F(InstallTest, TheArchiveShowsTheSymbolsOfTheSharedLibrary) {
  const auto shared = symbols("--dynamic", library_folder() + "/libhvd.so");
  EXPECT_GT(shared.size(), 100U);
  EXPECT_EQ(symbols("--extern-only", library_folder() + "/libhvd_static.a"), shared);
}

// A program that uses another symbol breaks when hvd changes inside.
TEST_F(InstallTest, TheLibraryShowsItsCallsAndNothingElse) {
  const std::string library = library_folder() + "/libhvd.so";
  const auto symbols = expect_success(
      {"nm", "--dynamic", "--defined-only", "--demangle", "--format=posix", library});
  int calls = 0;
  for (const auto& line : split(symbols.out, '\n')) {
    if (line.empty() || line.starts_with("HVD_")) continue;  // the version itself
    std::string name = line.substr(0, line.find("@@"));
    for (const char* const kind : {"vtable for ", "typeinfo name for ", "typeinfo for "}) {
      if (name.starts_with(kind)) name = name.substr(std::string(kind).size());
    }
    EXPECT_TRUE(name.starts_with("hvd::") || name.starts_with("hvd_")) << line;
    for (const char* const inner : {"runtime::", "worker::", "rendezvous::", "Impl::"}) {
      EXPECT_EQ(name.find(inner), std::string::npos) << line;
    }
    ++calls;
  }
  EXPECT_GT(calls, 100);
}

// The loader refuses a library without the version of the symbols that a program was linked with.
TEST_F(InstallTest, SymbolsHaveAnotherVersionWithEachVersionThatMayBreakPrograms) {
  const std::string version(HVD_PROJECT_VERSION);
  const auto dynamic = expect_success({"readelf", "--dynamic", library_folder() + "/libhvd.so"});
  EXPECT_NE(
      dynamic.out.find("Library soname: [libhvd.so." + version.substr(0, version.find('.')) + "]"),
      std::string::npos)
      << dynamic.out;

  compile("hvd", prefix(), path("consumer"));
  const auto needed = expect_success({"readelf", "--version-info", path("consumer")});
  EXPECT_NE(needed.out.find("Name: HVD_" + version.substr(0, version.rfind('.')) + " "),
            std::string::npos)
      << needed.out;
}

TEST_F(InstallTest, TheVersionIsTheSameEverywhere) {
  const std::string version = expect_success({"pkg-config", "--modversion", "hvd"},
                                             {{"PKG_CONFIG_PATH", library_folder() + "/pkgconfig"}})
                                  .out;
  EXPECT_EQ(trim(version), HVD_PROJECT_VERSION);
  const ExitStatus said = expect_success({prefix() + "/bin/hvdrun", "--version"});
  EXPECT_NE(said.out.find(HVD_PROJECT_VERSION), std::string::npos) << said.out;
}

}  // namespace
}  // namespace hvd::test
