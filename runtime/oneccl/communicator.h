// A set's communicator of oneCCL.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/ops/ccl.h"

namespace hvd::runtime::ccl {

// What oneCCL throws, as a value; `what` was tried.
Status guard(std::string_view what, const std::function<void()>& call);

// Module::reduces.
bool reduces(DataType type, ReduceOp op);

// Module::make.
Result<std::unique_ptr<LibraryCommunicator>> make_communicator(int rank, int size,
                                                               const Tell& tell);

}  // namespace hvd::runtime::ccl
