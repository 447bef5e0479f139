// hvd/torch.h, by as many ranks as there are: `hvd_torch_program SCENARIO`.
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <torch/torch.h>
#include <tuple>
#include <utility>
#include <vector>

#include <hvd/hvd.h>
#include <hvd/torch.h>

#include "tests/e2e/programs/check.h"

namespace {

namespace ht = hvd::libtorch;
using Optimizers = std::vector<std::pair<
    std::string, std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>>>;

void near(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
  check::that(found.defined() && expected.defined(), what + " is defined");
  check::that(at::allclose(found.to_dense(), expected.to_dense(), 1e-4, 1e-6),
              check::text(found) + " is near " + check::text(expected) + ": " + what);
}

float own() { return static_cast<float>(hvd::rank() + 1); }
float average() { return static_cast<float>(hvd::size() + 1) / 2; }
float sum() { return average() * static_cast<float>(hvd::size()); }
bool is_last() { return hvd::rank() == hvd::size() - 1; }

at::Tensor filled(float value) { return at::full({3}, value); }
at::Tensor parameter() { return at::zeros({3}).set_requires_grad(true); }

torch::OrderedDict<std::string, at::Tensor> named(
    const std::vector<std::pair<std::string, at::Tensor>>& parameters) {
  torch::OrderedDict<std::string, at::Tensor> result;
  for (const auto& [name, tensor] : parameters) result.insert(name, tensor);
  return result;
}

torch::nn::Sequential network() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(4, 5), torch::nn::Tanh(), torch::nn::Linear(5, 2));
}

template <typename Class, typename Options>
std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)> maker(
    Options options) {
  return [options](std::vector<at::Tensor> parameters) {
    return std::make_unique<Class>(std::move(parameters), options);
  };
}

const Optimizers& all_optimizers() {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace): of a test
  static const Optimizers kAll{
      {"SGD", maker<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01))},
      {"Adam", maker<Adam>(AdamOptions(0.05).amsgrad(true).betas({0.8, 0.95}))},
      {"AdamW", maker<AdamW>(AdamWOptions(0.05))},
      {"Adagrad", maker<Adagrad>(AdagradOptions(0.05))},
      {"RMSprop", maker<RMSprop>(RMSpropOptions(0.05).momentum(0.5).centered(true))},
      {"LBFGS", maker<LBFGS>(LBFGSOptions(0.5).max_iter(3).line_search_fn("strong_wolfe"))}};
  return kAll;
}

// --- tensors ---

void views() {
  using hvd::DataType;
  const std::vector<std::pair<at::ScalarType, DataType>> types{
      {at::kBool, DataType::boolean},  {at::kByte, DataType::uint8},
      {at::kChar, DataType::int8},     {at::kShort, DataType::int16},
      {at::kInt, DataType::int32},     {at::kLong, DataType::int64},
      {at::kHalf, DataType::float16},  {at::kBFloat16, DataType::bfloat16},
      {at::kFloat, DataType::float32}, {at::kDouble, DataType::float64}};
  for (const auto& [type, expected] : types) {
    const auto tensor = at::ones({2, 3}, type);
    const auto view = ht::view(tensor);
    check::that(view.data == tensor.data_ptr(), "no copy");
    check::that(view.type == expected && view.device.is_host(), "type and device");
    check::same(view.shape, std::vector<std::int64_t>{2, 3}, "shape");
    hvd::allreduce(view, {.name = "view", .op = hvd::Sum});
    const auto all =
        type == at::kBool ? at::ones({2, 3}, type) : at::full({2, 3}, hvd::size(), type);
    check::that(at::equal(tensor, all), "the sum of " + std::string(c10::toString(type)));

    // Results are tensors that own their memory.
    const auto rows = ht::tensor_of(hvd::allgather(view, {.name = "rows"}));
    check::that(rows.scalar_type() == type, "the type of a result");
    check::same(rows.sizes().vec(), std::vector<std::int64_t>{2 * hvd::size(), 3}, "all rows");
    check::that(at::equal(rows[0], all[0]), "the elements of a result");
  }
  const auto scalar = at::full({}, own());
  check::same(ht::view(scalar).shape.size(), std::size_t{0}, "no dimensions");
  hvd::allreduce(ht::view(scalar), {.name = "scalar"});
  near(scalar, at::full({}, average()), "the average of scalars");
  check::same(ht::view(at::empty({0, 3})).elements(), std::int64_t{0}, "no elements");

  const auto refused = [](const std::string& part, const at::Tensor& tensor) {
    check::throws<hvd::InvalidArgumentError>(part, {part}, [&] { ht::view(tensor); });
  };
  refused("undefined", {});
  refused("contiguous()", at::ones({2, 3}).t());
  refused("to_dense()", at::ones({2, 3}).to_sparse());
  refused("ComplexFloat", at::ones({2}, at::kComplexFloat));
  refused("no elements of this type", at::ones({2}, at::kComplexFloat));
}

void parameters() {
  torch::manual_seed(hvd::rank());
  torch::nn::Sequential model(torch::nn::Linear(4, 5), torch::nn::BatchNorm1d(5));
  model->forward(at::rand({8, 4}));  // changes the buffers
  ht::broadcast_parameters(*model, {.root = hvd::size() - 1});
  torch::manual_seed(hvd::size() - 1);
  torch::nn::Sequential roots(torch::nn::Linear(4, 5), torch::nn::BatchNorm1d(5));
  roots->forward(at::rand({8, 4}));
  for (const auto& item : model->named_parameters()) {
    near(item.value(), roots->named_parameters()[item.key()], item.key());
  }
  for (const auto& item : model->named_buffers()) {
    near(item.value(), roots->named_buffers()[item.key()], item.key());
  }

  auto turned = at::full({2, 3}, own()).t();
  ht::broadcast_parameters(named({{"turned", turned}}));
  near(turned, at::ones({3, 2}), "a tensor that is not contiguous");

  auto weights = parameter();
  torch::optim::Adam adam({weights}, torch::optim::AdamOptions(own()));
  if (hvd::rank() == 0) {
    weights.mutable_grad() = filled(2);
    adam.step();
  }
  ht::broadcast_optimizer_state(adam);
  check::same(adam.param_groups()[0].options().get_lr(), 1.0, "the root's options");
  check::same(adam.state().size(), std::size_t{1}, "the root's state");
}

// --- the optimizer ---

// Training with gradients of all ranks is that of one process with the batches of all.
void equal() {
  for (const auto& [name, make] : all_optimizers()) {
    auto model = network();
    auto alone = network();
    const auto inner = make(model->parameters());
    const auto reference = make(alone->parameters());
    ht::DistributedOptimizer optimizer(*inner, model->named_parameters(), {.name = name});
    for (int step = 0; step < 5; ++step) {
      torch::manual_seed(step);
      const auto inputs = at::rand({hvd::size() * 3, 4});
      const auto targets = at::rand({hvd::size() * 3, 2});
      const auto loss = [&](torch::nn::Sequential& net, std::int64_t begin, std::int64_t end) {
        auto result = torch::mse_loss(net->forward(inputs.slice(0, begin, end)),
                                      targets.slice(0, begin, end));
        result.backward();
        return result;
      };
      const auto own_loss = [&] {
        optimizer.zero_grad();
        return loss(model, hvd::rank() * 3, hvd::rank() * 3 + 3);
      };
      const auto whole_loss = [&] {
        reference->zero_grad();
        return loss(alone, 0, hvd::size() * 3);
      };
      if (name == "LBFGS") {
        optimizer.step(own_loss);
        reference->step(whole_loss);
      } else {
        own_loss();
        whole_loss();
        for (std::size_t i = 0; i < model->parameters().size(); ++i) {
          near(model->parameters()[i].grad(), alone->parameters()[i].grad(), "after backward()");
        }
        optimizer.step();
        reference->step();
      }
    }
    for (const auto& item : model->named_parameters()) {
      near(item.value(), alone->named_parameters()[item.key()], name + " " + item.key());
    }
  }
}

void unused() {
  auto used = parameter();
  auto frozen = parameter().set_requires_grad(false);
  auto unused = parameter();
  auto by_last = parameter();
  torch::optim::SGD sgd({used, frozen, unused, by_last}, torch::optim::SGDOptions(1).momentum(0.9));
  ht::DistributedOptimizer optimizer(
      sgd, named({{"used", used}, {"frozen", frozen}, {"unused", unused}, {"last", by_last}}));
  for (int step = 1; step <= 3; ++step) {
    optimizer.zero_grad();
    auto loss = (used * own()).sum() + frozen.sum();
    if (is_last()) loss = loss + by_last.sum();
    loss.backward();
    near(used.grad(), filled(average()), "used");
    near(by_last.grad(), filled(1.0F / static_cast<float>(hvd::size())), "used by one rank");
    check::that(!frozen.grad().defined() && !unused.grad().defined(), "no gradient stays none");
    optimizer.step();
  }
  near(unused, filled(0), "unused");
  near(frozen, filled(0), "frozen");

  // What was frozen may learn later.
  frozen.set_requires_grad(true);
  optimizer.zero_grad();
  (frozen * own()).sum().backward();
  near(frozen.grad(), filled(average()), "not frozen any more");
  optimizer.step();

  // A rank without a batch, and after it all ranks without one.
  optimizer.zero_grad();
  if (is_last()) (used * own()).sum().backward();
  optimizer.step();
  near(used.grad(), filled(1), "zeros of those that had no batch");
  optimizer.zero_grad();
  optimizer.step();
  check::that(!used.grad().defined(), "nobody had one");

  // What autograd gives to the program alone is this rank's own.
  optimizer.zero_grad();
  near(torch::autograd::grad({(used * own()).sum()}, {used})[0], filled(own()), "one's own");
  check::that(!used.grad().defined(), "nothing has come");

  // A gradient that the program has made.
  used.mutable_grad() = filled(own());
  optimizer.step();
  near(used.grad(), filled(average()), "made by the program");
}

void passes() {
  for (const auto op : {hvd::Average, hvd::Sum}) {
    const float one = op == hvd::Sum ? sum() : average();
    auto weights = parameter();
    auto other = parameter();
    torch::optim::SGD sgd({weights, other}, 1.0);
    {
      ht::DistributedOptimizer optimizer(
          sgd, named({{"w", weights}, {"o", other}}),
          {.name = "twice", .op = op, .compression = hvd::Compression::float16});
      for (const float times : {1.0F, 2.0F, 3.0F}) {  // each pass reduces
        (weights * own()).sum().backward();
        near(weights.grad(), filled(times * one), "one pass more");
      }
      other.sum().backward();
      near(weights.grad(), filled(3 * one), "a pass without it");
      optimizer.step();
      near(weights, filled(-3 * one), "a step");
      // Gradients that nobody has set to zero.
      (weights * own()).sum().backward();
      near(weights.grad(), filled(4 * one), "not set to zero");
      optimizer.zero_grad(false);
      near(weights.grad(), filled(0), "set to zero");
      (weights * own()).sum().backward();
      near(weights.grad(), filled(one), "after zeros");
    }
    {
      ht::DistributedOptimizer optimizer(
          sgd, named({{"w", weights}, {"o", other}}),
          {.name = "several", .op = op, .backward_passes_per_step = 2, .number_of_groups = 1});
      optimizer.zero_grad();
      (weights * own()).sum().backward();
      near(weights.grad(), filled(own()), "not reduced yet");
      (weights * own() + other).sum().backward();
      near(weights.grad(), filled(2 * one), "two passes");
      optimizer.step();
      optimizer.zero_grad();
      (weights * own()).sum().backward();
      check::throws<hvd::InvalidArgumentError>("passes within a step", {"between steps"},
                                               [&] { optimizer.set_backward_passes_per_step(1); });
      optimizer.synchronize();
      near(weights.grad(), filled(one), "reduced earlier");
      optimizer.step();
      optimizer.zero_grad();
      optimizer.set_backward_passes_per_step(1);
      (weights * own()).sum().backward();
      near(weights.grad(), filled(one), "one pass from now on");
    }
  }
}

void sparse() {
  for (const bool as_rows : {true, false}) {
    torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(6, 2).sparse(true));
    torch::nn::Embedding alone(torch::nn::EmbeddingOptions(6, 2));
    ht::broadcast_parameters(*embedding);
    {
      const torch::NoGradGuard no_grad;
      alone->weight.copy_(embedding->weight);
    }
    torch::optim::SGD sgd(embedding->parameters(), 0.1);
    torch::optim::SGD reference(alone->parameters(), 0.1);
    ht::DistributedOptimizerOptions options;
    if (as_rows) options.sparse = {"weight"};
    ht::DistributedOptimizer optimizer(sgd, embedding->named_parameters(), options);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      reference.zero_grad();
      const auto rows = [&](int rank) { return torch::tensor({rank % 6, (rank + step) % 6, 5}); };
      // The last rank has no batch in the second step.
      if (step != 1 || !is_last()) embedding(rows(hvd::rank())).sum().backward();
      for (int rank = 0; rank < hvd::size(); ++rank) {
        if (step == 1 && rank == hvd::size() - 1) continue;
        (alone(rows(rank)).sum() / hvd::size()).backward();
      }
      optimizer.step();
      reference.step();
      if (step != 1 || hvd::size() > 1) {
        check::that(embedding->weight.grad().is_sparse() == as_rows, "rows stay rows");
      }
    }
    near(embedding->weight, alone->weight, "an embedding");
  }
}

// Two optimizers in one graph, of which the ranks come to the one or the other first.
void several() {
  auto first = parameter();
  auto second = parameter();
  torch::optim::SGD sgd({first}, 1.0);
  torch::optim::Adam adam({second});
  ht::DistributedOptimizer one(sgd, named({{"w", first}}), {.name = "one"});
  ht::DistributedOptimizer two(adam, named({{"w", second}}), {.name = "two"});
  for (int step = 0; step < 20; ++step) {
    one.zero_grad();
    two.zero_grad();
    const auto a = (first * own()).sum();
    const auto b = (second * own()).sum();
    (hvd::rank() % 2 == 0 ? a + b : b + a).backward();
    near(first.grad(), filled(average()), "the first optimizer");
    near(second.grad(), filled(average()), "the second optimizer");
    one.step();
    two.step();
  }
}

struct Failing : torch::autograd::Function<Failing> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& input) {
    return input.clone();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                               const torch::autograd::tensor_list&) {
    throw std::runtime_error("a failure of the program");
  }
};

void errors() {
  auto weights = parameter();
  auto other = parameter();
  torch::optim::SGD sgd({weights, other}, 1.0);
  using Options = ht::DistributedOptimizerOptions;
  const auto refused = [&](const std::string& part, const Options& options) {
    check::throws<hvd::InvalidArgumentError>(part, {part}, [&] {
      const ht::DistributedOptimizer optimizer(sgd, named({{"w", weights}, {"o", other}}), options);
    });
  };
  refused("Average or Sum", {.op = hvd::Max});
  refused("1 or more", {.backward_passes_per_step = 0});
  refused("predivide", {.op = hvd::Sum, .gradient_predivide_factor = 2});
  refused("\"x\"", {.sparse = {"x"}});
  refused("\"x\"", {.groups = {{"x"}}});
  const auto both = named({{"w", weights}, {"o", other}});
  check::throws<hvd::InvalidArgumentError>("no name", {"parameter 1", "not one of"}, [&] {
    const ht::DistributedOptimizer optimizer(sgd, named({{"w", weights}}));
  });
  {
    const ht::DistributedOptimizer optimizer(sgd, both);
    check::throws<hvd::InvalidArgumentError>("a second one", {"another DistributedOptimizer"}, [&] {
      const ht::DistributedOptimizer second(sgd, both, {.name = "second"});
    });
  }

  // A pass that ends with an exception counts as a pass, on all ranks.
  const auto fail = [&] {
    std::string said;
    try {
      // The gradient comes before the failure, since its node is younger.
      const auto failing = Failing::apply(other).sum();
      (failing + (weights * own()).sum()).backward();
    } catch (const std::runtime_error& error) {
      said = error.what();
    }
    check::same(said, std::string("a failure of the program"), "backward() throws what it was");
    check::that(weights.grad().defined(), "a gradient has come");
  };
  {
    const ht::DistributedOptimizer lost(sgd, both, {.name = "lost"});
    fail();
  }
  weights.mutable_grad() = at::Tensor();
  ht::DistributedOptimizer optimizer(sgd, both);
  for (int step = 0; step < 2; ++step) {
    fail();
    optimizer.zero_grad();
    (weights * own()).sum().backward();
    near(weights.grad(), filled(average()), "after a failure");
    optimizer.step();
    optimizer.zero_grad();
  }

  // The type of a parameter changes.
  weights.set_data(weights.to(at::kDouble));
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    (weights * own()).sum().backward();
    near(weights.grad(), filled(average()).to(at::kDouble), "another type");
    optimizer.step();
  }

  // Ranks that disagree are told so, by backward(), and go on.
  if (hvd::size() > 1) {
    if (is_last()) other.set_data(at::zeros({3}, at::kDouble));
    optimizer.zero_grad();
    check::throws<hvd::InvalidArgumentError>("disagreement", {"gradient.o"},
                                             [&] { other.sum().backward(); });
    other.set_data(at::zeros({3}));
    optimizer.zero_grad();
    other.mutable_grad() = at::Tensor();
    other.sum().backward();
    near(other.grad(), filled(1), "after a disagreement");
  }
}

// --- data ---

void loader() {
  class Numbers : public torch::data::datasets::Dataset<Numbers> {
   public:
    torch::data::Example<> get(std::size_t index) override {
      return {at::full({1}, static_cast<std::int64_t>(index)), at::zeros({1})};
    }
    torch::optional<std::size_t> size() const override { return 20; }
  };
  hvd::Sampler progress({.size = 20, .seed = 5});
  std::vector<std::int64_t> seen(20);
  // The first loader is given up after a step, as when the world changes.
  for (const int steps : {1, 100}) {
    auto data = torch::data::make_data_loader(Numbers().map(torch::data::transforms::Stack<>()),
                                              ht::DataSampler(progress),
                                              torch::data::DataLoaderOptions(3).workers(2));
    int step = 0;
    for (auto& batch : *data) {
      if (step++ == steps) break;
      const auto expected = progress.next(3);
      check::same(batch.data.flatten().numel(), static_cast<std::int64_t>(expected.size()),
                  "batch");
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const auto sample = batch.data.flatten()[static_cast<std::int64_t>(i)].item<std::int64_t>();
        check::same(sample, expected[i], "sample");
        ++seen[static_cast<std::size_t>(sample)];
      }
    }
  }
  check::that(progress.done(), "the epoch is over");
  hvd::allreduce(seen, {.name = "seen", .op = hvd::Sum});
  std::int64_t twice = 0;
  for (const auto count : seen) {
    check::that(count >= 1, "every sample was seen");
    twice += count - 1;
  }
  check::that(twice < hvd::size(), "only the padding was seen twice");

  progress.set_epoch(1);
  ht::DataSampler sampler(progress);
  const auto first = sampler.next(2);
  torch::serialize::OutputArchive out;
  sampler.save(out);
  std::ostringstream saved;
  out.save_to(saved);
  const auto second = sampler.next(2);
  sampler.reset();
  check::that(sampler.next(2) == first, "reset() goes back to the progress");
  std::istringstream stream(saved.str());
  torch::serialize::InputArchive in;
  in.load_from(stream);
  sampler.load(in);
  check::that(sampler.next(2) == second, "load() goes back to where it was saved");
  check::throws<hvd::InvalidArgumentError>("another size", {"size"}, [&] { sampler.reset(5); });
}

// --- states ---

// What commit() has kept comes back, of each class of optimizers.
void states() {
  for (const auto& [name, make] : all_optimizers()) {
    auto model = network();
    auto alone = network();
    model->push_back(torch::nn::BatchNorm1d(2));
    alone->push_back(torch::nn::BatchNorm1d(2));
    const auto inner = make(model->parameters());
    const auto reference = make(alone->parameters());
    ht::DistributedOptimizer optimizer(*inner, model->named_parameters(), {.name = name});
    hvd::elastic::State state({.compare_every = 1});
    ht::add(state, "model", *model);
    ht::add(state, "optimizer", *inner);
    int step = 0;
    const auto train = [&](torch::nn::Sequential& net, torch::optim::Optimizer& with, int number) {
      torch::manual_seed(number);
      const auto inputs = at::rand({3, 4});
      return with.step([&] {
        for (auto& one : net->parameters()) one.mutable_grad() = at::Tensor();
        auto loss = net->forward(inputs).square().sum();
        loss.backward();
        return loss;
      });
    };
    hvd::elastic::run(state, [&] {
      state.commit();  // of an optimizer that has no state yet
      train(model, *inner, 100);
      inner->param_groups()[0].options().set_lr(17);
      state.restore();
      for (; step < 3; ++step) train(model, *inner, step);
      state.commit();
      const auto lr = inner->param_groups()[0].options().get_lr();
      inner->param_groups()[0].options().set_lr(17);
      train(model, *inner, 100);
      state.restore();
      check::same(inner->param_groups()[0].options().get_lr(), lr, "the options are restored");
      train(model, *inner, 3);
    });
    for (int number = 0; number <= 3; ++number) train(alone, *reference, number);
    for (const auto& item : model->named_parameters()) {
      near(item.value(), alone->named_parameters()[item.key()], name + " " + item.key());
    }
    for (const auto& item : model->named_buffers()) {
      near(item.value(), alone->named_buffers()[item.key()], name + " " + item.key());
    }
  }
}

void odd_states() {
  // Tensors that do not lie in memory one after the other, or have no elements.
  struct Odd : torch::nn::Module {
    Odd()
        : turned(register_buffer("turned", at::full({2, 3}, own()).t())),
          none(register_buffer("none", at::empty({0}))) {}
    at::Tensor turned;
    at::Tensor none;
  } odd;
  torch::nn::Linear linear(2, 2);
  hvd::elastic::State state;
  ht::add(state, "odd", odd);
  ht::add(state, "linear", *linear);
  hvd::elastic::run(state, [&] {
    near(odd.turned, at::ones({3, 2}), "rank 0's");
    state.commit();
    odd.turned.fill_(7);
    state.restore();
    near(odd.turned, at::ones({3, 2}), "restored");

    linear->to(at::kDouble);
    check::throws<hvd::InvalidArgumentError>("moved", {"\"weight\"", "has moved"},
                                             [&] { state.commit(); });
  });

  // A class of optimizers that hvd does not know, and bytes of another optimizer.
  struct Own : torch::optim::Optimizer {
    explicit Own(std::vector<at::Tensor> parameters)
        : Optimizer(std::move(parameters), std::make_unique<torch::optim::SGDOptions>(1)) {}
    at::Tensor step(LossClosure) override { return {}; }
  } unknown({parameter()});
  hvd::elastic::State another;
  check::throws<hvd::InvalidArgumentError>("another class", {"of another class", "Handler"},
                                           [&] { ht::add(another, "optimizer", unknown); });
  torch::optim::Adam adam({parameter()});
  torch::optim::SGD sgd({parameter()}, 1.0);
  torch::optim::SGD two({parameter(), parameter()}, 1.0);
  const auto saved = ht::detail::saved_optimizer(sgd);
  for (auto* const optimizer : std::vector<torch::optim::Optimizer*>{&adam, &two}) {
    check::throws<hvd::InvalidArgumentError>(
        "other bytes", {"other groups"}, [&] { ht::detail::load_optimizer(*optimizer, saved); });
  }
  check::throws<hvd::InvalidArgumentError>("cut off", {"cut off"}, [&] {
    ht::detail::load_optimizer(sgd, std::string_view(saved).substr(0, saved.size() - 1));
  });
}

}  // namespace

int main(int argc, char** argv) {
  const auto in_world = [](const std::function<void()>& scenario) {
    return [scenario] {
      torch::set_num_threads(1);
      hvd::init();
      scenario();
      check::say_ok();
      hvd::shutdown();
    };
  };
  check::Scenarios scenarios;
  const std::vector<std::pair<std::string, std::function<void()>>> all{
      {"views", views},   {"parameters", parameters}, {"equal", equal},          {"unused", unused},
      {"passes", passes}, {"sparse", sparse},         {"several", several},      {"errors", errors},
      {"loader", loader}, {"states", states},         {"odd_states", odd_states}};
  for (const auto& [name, scenario] : all) scenarios.emplace(name, in_world(scenario));
  return check::run(argc, argv, scenarios);
}
