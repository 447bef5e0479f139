// The arithmetic on the way of the tensors of one batch, which have all of it in common: into the
// buffer or onto the wire, there, and out of it again. A value.
#pragma once

#include <cstddef>

#include "runtime/core/arithmetic.h"
#include "runtime/core/request.h"

namespace hvd::runtime {

struct BatchArithmetic {
  DataType type;  // of the tensors
  DataType wire;  // what travels, and is added up
  ReduceOp op;
  double prescale;
  double postscale;
  int ranks;  // the divisor of an average

  BatchArithmetic(const Request& request, int active_ranks)
      : type(request.type),
        wire(request.tree != 0 ? request.type
                               : wire_type(request.type, request.op, request.compression)),
        op(request.op),
        prescale(request.prescale),
        postscale(request.postscale),
        ranks(active_ranks) {}
  // Of the first entry of a batch: where it adds along a tree, that has the divisor.
  BatchArithmetic(const Entry& entry, int active_ranks)
      : BatchArithmetic(entry.request,
                        entry.leaves ? entry.leaves->tree->divisor() : active_ranks) {}

  bool compressed() const { return wire != type; }
  // Whether reduced elements of the wire's type want finish() before they are unpacked.
  bool changes_sums() const {
    return !compressed() && (op == ReduceOp::average || postscale != 1.0);
  }
  bool only_copies() const { return !compressed() && prescale == 1.0; }
  void pack(const void* tensor, void* buffer, std::size_t elements) const {
    convert(type, tensor, wire, buffer, elements, prescale);
  }
  // The work that is left to do with reduced elements of the wire's type, if they are not unpacked.
  void finish(void* data, std::size_t elements) const {
    if (op == ReduceOp::average) divide(wire, data, elements, ranks);
    scale(wire, data, elements, postscale);
  }
  // The same for those that are: compressed ones are divided in their own type.
  void unpack(const void* buffer, void* tensor, std::size_t elements) const {
    if (!compressed()) {
      copy_scaled(type, tensor, buffer, elements, 1.0);
      return;
    }
    const double factor = op == ReduceOp::average ? postscale / ranks : postscale;
    convert(wire, buffer, type, tensor, elements, factor);
  }
};

}  // namespace hvd::runtime
