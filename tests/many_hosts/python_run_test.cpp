// hvd.run() of Python over pretend hosts: the workers of other hosts reach the program that started
// the job, over IPv4 or IPv6, and have the key that proves it.
#include "base/text.h"
#include "tests/many_hosts/many_hosts_test.h"

namespace hvd::test {
namespace {

class PythonRunTest : public ManyHostsTest {
 protected:
  void SetUp() override {
    if (run({"/usr/bin/python3", "-c", "import numpy"}).code != 0) {
      GTEST_SKIP() << "there is no NumPy for /usr/bin/python3";
    }
    ManyHostsTest::SetUp();
  }

  static void place_package(Host& host) {
    place_python_package(host);
    host.place(HVD_SOURCE_DIR "/tests/many_hosts/run_function.py");
  }

  void expect_results(const BedOptions& options) {
    make_bed(options);
    place_package(bed().head());
    for (int number = 1; number <= bed().size(); ++number) place_package(host(number));
    const auto program =
        bed().head().start({"/usr/bin/python3", "/root/run_function.py", bed().host_list(1)},
                           {.environment = {{"PYTHONPATH", "/root/python"},
                                            {"PYTHONDONTWRITEBYTECODE", "1"},
                                            {"LD_LIBRARY_PATH", "/root/python"},
                                            {"PATH", cat(HVD_BIN_DIR, ":/usr/bin:/bin")}}});
    const ExitStatus end = program->wait();
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_EQ(end.out, "results [('sent', 0, 2, 'h1'), ('sent', 1, 2, 'h2')]\n") << end.err;
  }
};

TEST_F(PythonRunTest, GivesTheResultsOfOtherHostsOverIPv4) { expect_results({.ipv6 = false}); }
TEST_F(PythonRunTest, GivesTheResultsOfOtherHostsOverIPv6) { expect_results({.ipv4 = false}); }
TEST_F(PythonRunTest, GivesTheResultsOfHostsThatHaveBoth) { expect_results({}); }

}  // namespace
}  // namespace hvd::test
