// hvdrun -np RANKS --cpu-operations ccl hvd_oneccl_bench [ROUNDS [ROW]]: hvd beside bare calls of
// oneCCL (compare.h).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include <oneapi/ccl.hpp>

#include <hvd/hvd.h>

#include "bench/libraries/compare.h"

namespace hvd::bench {
namespace {

class BareOneCcl {
 public:
  BareOneCcl() : communicator_(make()) {}
  void barrier() { ::ccl::barrier(communicator_).wait(); }
  void reduce_in_place(float* data, std::size_t elements) {
    ::ccl::allreduce(data, data, elements, ::ccl::datatype::float32, ::ccl::reduction::sum,
                     communicator_)
        .wait();
  }

 private:
  ::ccl::communicator make() {
    ::ccl::kvs::address_type address{};
    if (rank() == 0) {
      store_ = ::ccl::create_main_kvs();
      address = store_->get_address();
    }
    const std::string told = broadcast_object(std::string(address.begin(), address.end()));
    std::copy(told.begin(), told.end(), address.begin());
    if (rank() != 0) store_ = ::ccl::create_kvs(address);
    return ::ccl::create_communicator(size(), rank(), store_);
  }

  std::shared_ptr<::ccl::kvs> store_;
  ::ccl::communicator communicator_;
};

void run(int rounds, std::string_view only) {
  init();
  ::ccl::init();
  print_head("oneCCL", true);
  {
    BareOneCcl bare;
    for (int round = 0; round < rounds; ++round) {
      for (const Row& row : library_rows()) {
        if (row.what.find(only) != std::string::npos) compare(bare, row);
      }
    }
  }
  shutdown();
}

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  try {
    hvd::bench::run(argc > 1 ? std::atoi(argv[1]) : 1, argc > 2 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
