// Programs that know nothing of hvd, on two pretend hosts: DistributedDataParallel of the
// distribution's PyTorch, whose workers are all started again when one is lost.
#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "tests/many_hosts/many_hosts_test.h"

namespace hvd::test {
namespace {

class PlainGroupTest : public ManyHostsTest {
 protected:
  void SetUp() override {
    if (run({"/usr/bin/python3", "-c", "import torch"}).code != 0) {
      GTEST_SKIP() << "there is no PyTorch for /usr/bin/python3";
    }
    ManyHostsTest::SetUp();
    make_bed({.hosts = 2});
    for (const int number : {1, 2}) {
      host(number).place(HVD_SOURCE_DIR "/tests/many_hosts/plain_ddp.py");
    }
  }

  // The weights at the end of a job that loses a worker so many times.
  std::string weights_after(int crashes) {
    std::filesystem::remove(host(1).files() / "root" / "checkpoint");
    const ExitStatus end = run_job({"-H", "h1:1,h2:1", "--max-restarts", cat(crashes),
                                    "/usr/bin/python3", "plain_ddp.py", cat(crashes)});
    EXPECT_EQ(end.code, 0) << end.out << end.err;
    std::size_t restarts = 0;
    const std::string text = "all workers are started again";
    for (auto at = end.err.find(text); at != std::string::npos; at = end.err.find(text, at + 1)) {
      ++restarts;
    }
    EXPECT_EQ(restarts, static_cast<std::size_t>(crashes)) << end.err;
    return end.out.substr(std::min(end.out.find("weights"), end.out.size()));
  }
};

TEST_F(PlainGroupTest, NightlyTrainsAsIfNoHostHadLostAWorker) {
  const std::string undisturbed = weights_after(0);
  EXPECT_TRUE(undisturbed.starts_with("weights ")) << undisturbed;
  EXPECT_EQ(weights_after(2), undisturbed);  // one on each host
}

}  // namespace
}  // namespace hvd::test
