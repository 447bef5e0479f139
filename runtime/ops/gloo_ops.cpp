#include "runtime/ops/gloo_ops.h"

#include <cstdint>
#include <cstring>
#include <exception>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/common/error.h>
#include <gloo/context.h>
#include <new>

#include "base/text.h"
#include "runtime/arithmetic.h"
#include "runtime/ops/fusion_buffer.h"

namespace hvd::runtime {
namespace {

// What was thrown, as a value. A function of its own, so that tests/tsan.supp can name it:
// exceptions come from Gloo's own thread, through locks that ThreadSanitizer does not see.
[[gnu::noinline]] Status status_of_current_exception(std::string_view what) {
  try {
    throw;
  } catch (const gloo::IoException& error) {
    const bool late = std::strstr(error.what(), "imed out") != nullptr;
    return {late ? Code::deadline_exceeded : Code::unavailable, cat(what, ": ", error.what())};
  } catch (const std::bad_alloc&) {
    return {Code::resource_exhausted, cat(what, ": no memory left")};
  } catch (const std::exception& error) {
    return {Code::internal, cat(what, ": ", error.what())};
  } catch (...) {
    return {Code::internal, cat(what, ": something was thrown that is no exception")};
  }
}

// Runs `collective` and turns what it throws into a value.
template <typename Collective>
Status guarded(const GlooMesh& mesh, std::string_view what, Collective collective) {
  if (mesh.aborted()) return {Code::aborted, cat(what, ": the data connections were shut")};
  try {
    collective();
    return {};
  } catch (...) {
    return status_of_current_exception(what);
  }
}

void same_as_inputs(std::span<const Entry> entries, std::span<Outcome> outcomes) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    outcomes[i].output = entries[i].output;
    outcomes[i].shape = entries[i].request.shape;
  }
}

class GlooOperation : public Operation {
 public:
  GlooOperation(std::shared_ptr<GlooMesh> mesh, const GlooOperationOptions& options)
      : mesh_(std::move(mesh)), options_(options) {}
  void abort() override { mesh_->abort(); }

 protected:
  const GlooMesh& mesh() const { return *mesh_; }
  const std::shared_ptr<gloo::Context>& context() const { return mesh_->context(); }
  const GlooOperationOptions& options() const { return options_; }

 private:
  std::shared_ptr<GlooMesh> mesh_;
  GlooOperationOptions options_;
};

class GlooAllreduce final : public GlooOperation {
 public:
  using GlooOperation::GlooOperation;
  std::string_view name() const override { return "gloo allreduce"; }
  bool enabled(const Response& response, const Group&) const override {
    return response.kind == Kind::allreduce;
  }

  Status execute(const Response& /*response*/, const Group& /*group*/, std::span<Entry> entries,
                 std::span<Outcome> outcomes) override {
    same_as_inputs(entries, outcomes);
    return guarded(mesh(), name(), [&] {
      if (entries.size() == 1) {
        reduce_one(entries.front());
      } else {
        reduce_fused(entries);
      }
    });
  }

 private:
  void reduce_one(Entry& entry) {
    const Request& request = entry.request;
    if (entry.output != entry.input && request.bytes() > 0) {
      std::memcpy(entry.output, entry.input, request.bytes());
    }
    run(request, entry.output, static_cast<std::size_t>(request.elements()));
  }

  void reduce_fused(std::span<Entry> entries) {
    const Request& first = entries.front().request;
    std::size_t elements = 0;
    for (const auto& entry : entries) {
      elements += static_cast<std::size_t>(entry.request.elements());
    }
    std::byte* const buffer = buffer_.reserve(elements * size_of(first.type));
    std::byte* at = buffer;
    for (const auto& entry : entries) {
      const auto bytes = entry.request.bytes();
      if (bytes > 0) std::memcpy(at, entry.input, bytes);
      at += bytes;
    }
    run(first, buffer, elements);
    at = buffer;
    for (const auto& entry : entries) {
      const auto bytes = entry.request.bytes();
      if (bytes > 0) std::memcpy(entry.output, at, bytes);
      at += bytes;
    }
  }

  void run(const Request& request, void* data, std::size_t elements) {
    if (elements == 0) return;
    scale(request.type, data, elements, request.prescale);
    gloo::AllreduceOptions gloo_options(context());
    gloo_options.setTimeout(options().timeout);
    gloo_options.setReduceFunction(reduce_function(request.type, request.op));
    // Gloo asks for a type only to know its size.
    switch (size_of(request.type)) {
      case 1:
        gloo_options.setOutput(static_cast<std::uint8_t*>(data), elements);
        break;
      case 2:
        gloo_options.setOutput(static_cast<std::uint16_t*>(data), elements);
        break;
      case 4:
        gloo_options.setOutput(static_cast<std::uint32_t*>(data), elements);
        break;
      default:
        gloo_options.setOutput(static_cast<std::uint64_t*>(data), elements);
        break;
    }
    gloo::allreduce(gloo_options);
    if (request.op == ReduceOp::average) divide(request.type, data, elements, context()->size);
    scale(request.type, data, elements, request.postscale);
  }

  FusionBuffer buffer_;
};

class GlooBroadcast final : public GlooOperation {
 public:
  using GlooOperation::GlooOperation;
  std::string_view name() const override { return "gloo broadcast"; }
  bool enabled(const Response& response, const Group&) const override {
    return response.kind == Kind::broadcast;
  }

  Status execute(const Response& /*response*/, const Group& /*group*/, std::span<Entry> entries,
                 std::span<Outcome> outcomes) override {
    same_as_inputs(entries, outcomes);
    Entry& entry = entries.front();
    const auto bytes = entry.request.bytes();
    if (bytes == 0) return {};
    if (entry.output != entry.input && context()->rank == entry.request.root) {
      std::memcpy(entry.output, entry.input, bytes);
    }
    return guarded(mesh(), name(), [&] {
      gloo::BroadcastOptions gloo_options(context());
      gloo_options.setTimeout(options().timeout);
      gloo_options.setOutput(static_cast<std::uint8_t*>(entry.output), bytes);
      gloo_options.setRoot(entry.request.root);
      gloo::broadcast(gloo_options);
    });
  }
};

class GlooBarrier final : public GlooOperation {
 public:
  using GlooOperation::GlooOperation;
  std::string_view name() const override { return "gloo barrier"; }
  bool enabled(const Response& response, const Group&) const override {
    return response.kind == Kind::barrier;
  }

  Status execute(const Response& /*response*/, const Group& /*group*/, std::span<Entry> /*entries*/,
                 std::span<Outcome> /*outcomes*/) override {
    return guarded(mesh(), name(), [&] {
      gloo::BarrierOptions gloo_options(context());
      gloo_options.setTimeout(options().timeout);
      gloo::barrier(gloo_options);
    });
  }
};

}  // namespace

std::vector<std::unique_ptr<Operation>> make_gloo_operations(std::shared_ptr<GlooMesh> mesh,
                                                             const GlooOperationOptions& options) {
  std::vector<std::unique_ptr<Operation>> operations;
  operations.push_back(std::make_unique<GlooAllreduce>(mesh, options));
  operations.push_back(std::make_unique<GlooBroadcast>(mesh, options));
  operations.push_back(std::make_unique<GlooBarrier>(std::move(mesh), options));
  return operations;
}

}  // namespace hvd::runtime
