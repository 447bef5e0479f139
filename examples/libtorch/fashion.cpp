// SPDX-License-Identifier: Apache-2.0
// Recognizes clothes on small photographs: an elastic job with LibTorch on the data set
// Fashion-MNIST.
//
//     hvdrun -np 2 --min-np 1 ./fashion --images 6000 --epochs 3
//
// Every image is seen once in an epoch, whichever workers come, go and die. After each epoch all
// workers together say how many of the images that were kept aside they recognize. Debian's package
// dataset-fashion-mnist has the images; --data names another folder with the same files. With
// --static 1 the same training runs without elastic::run.
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <torch/torch.h>
#include <utility>
#include <zlib.h>

#include <hvd/hvd.h>
#include <hvd/torch.h>

namespace {

constexpr std::int64_t kBatch = 50;

// Bytes of a compressed file after its header, in this shape; -1 stands for as many as there are.
at::Tensor read(const std::string& path, std::int64_t header,
                const std::vector<std::int64_t>& shape) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::string bytes;
  std::string part(1 << 20, '\0');
  for (;;) {
    const int count = gzread(file.get(), part.data(), static_cast<unsigned>(part.size()));
    if (count < 0) throw std::runtime_error("cannot read " + path);
    if (count == 0) break;
    bytes.append(part, 0, static_cast<std::size_t>(count));
  }
  const auto size = static_cast<std::int64_t>(bytes.size());
  return at::from_blob(bytes.data(), {size}, at::kByte).slice(0, header).clone().reshape(shape);
}

struct Images : torch::data::datasets::BatchDataset<Images, torch::data::Example<>> {
  Images(const std::string& folder, const std::string& name)
      : pixels(read(folder + "/" + name + "-images-idx3-ubyte.gz", 16, {-1, 1, 28, 28})),
        classes(read(folder + "/" + name + "-labels-idx1-ubyte.gz", 8, {-1}).to(at::kLong)) {}

  torch::data::Example<> get_batch(torch::ArrayRef<std::size_t> numbers) override {
    const std::vector<std::int64_t> rows(numbers.begin(), numbers.end());
    const auto which = torch::tensor(rows, at::kLong);
    return {pixels.index_select(0, which).to(at::kFloat) / 255, classes.index_select(0, which)};
  }
  torch::optional<std::size_t> size() const override { return classes.size(0); }

  at::Tensor pixels;
  at::Tensor classes;
};

torch::nn::Sequential network() {
  torch::manual_seed(1);
  namespace nn = torch::nn;
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 8, 5).stride(2)), nn::ReLU(), nn::Flatten(),
                        nn::Linear(8 * 12 * 12, 10));
}

// The share of the images that are recognized; each worker looks at some of them.
double accuracy(torch::nn::Sequential& model, const Images& images) {
  const torch::NoGradGuard no_grad;
  const auto own = [](const at::Tensor& all) { return all.slice(0, hvd::rank(), {}, hvd::size()); };
  const auto found = model->forward(own(images.pixels).to(at::kFloat) / 255).argmax(1);
  const auto right = (found == own(images.classes)).sum();
  hvd::allreduce(hvd::libtorch::view(right), {.name = "right", .op = hvd::Sum});
  return right.item<double>() / static_cast<double>(images.classes.size(0));
}

struct Arguments {
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::int64_t images = 60'000;
  int epochs = 3;
  bool is_static = false;
};

Arguments arguments_of(int argc, char** argv) {
  std::map<std::string, std::string> given;
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  Arguments arguments;
  for (const auto& [name, value] : given) {
    if (name == "--data") {
      arguments.data = value;
    } else if (name == "--images") {
      arguments.images = std::atoll(value.c_str());
    } else if (name == "--epochs") {
      arguments.epochs = std::atoi(value.c_str());
    } else if (name == "--static") {
      arguments.is_static = value != "0";
    } else {
      throw std::runtime_error("unknown argument " + name);
    }
  }
  return arguments;
}

void train(const Arguments& arguments) {
  const Images images(arguments.data, "train");
  const Images kept_aside(arguments.data, "t10k");
  auto model = network();
  torch::optim::Adam adam(model->parameters(), 0.003);
  hvd::libtorch::DistributedOptimizer optimizer(adam, model->named_parameters());
  hvd::Sampler sampler({.size = arguments.images, .seed = 1});
  int epoch = 1;

  hvd::elastic::State state;
  hvd::libtorch::add(state, "model", *model);
  hvd::libtorch::add(state, "optimizer", adam);
  state.add("sampler", sampler);
  state.add("epoch", epoch);

  const auto steps = [&](bool is_elastic) {
    while (epoch <= arguments.epochs) {
      auto loader =
          torch::data::make_data_loader(images, hvd::libtorch::DataSampler(sampler), kBatch);
      for (auto& batch : *loader) {
        optimizer.zero_grad();
        torch::nn::functional::cross_entropy(model->forward(batch.data), batch.target).backward();
        optimizer.step();
        sampler.next(kBatch);
        if (is_elastic) state.commit();
      }
      const double share = accuracy(model, kept_aside);
      if (hvd::rank() == 0) {
        std::cout << "epoch " << epoch << ": " << std::fixed << std::setprecision(1) << 100 * share
                  << " % are recognized" << std::endl;
      }
      sampler.set_epoch(epoch++);
      if (is_elastic) state.commit();
    }
  };
  if (arguments.is_static) {
    hvd::libtorch::broadcast_parameters(*model);
    steps(false);
  } else {
    hvd::elastic::run(state, [&] { steps(true); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    torch::set_num_threads(1);
    hvd::init();
    train(arguments_of(argc, argv));
    hvd::shutdown();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "fashion: " << error.what() << std::endl;
    return 1;
  }
}
