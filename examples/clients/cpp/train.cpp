// Train a network on recorded batches from C++, in two contexts at once: a thread each, which have
// nothing in common. Each loss is compared with what graphc said when it trained the same network.
//
//     c++ -std=c++17 -O2 -Wall train.cpp -I../out -L../out -ldigits_trainer -pthread
//         -Wl,-rpath,'$ORIGIN/../out' -o train
//     ./train ../out/training state.safetensors 20
//
// Both train to step 20 and write the state, and a third goes on from it to the last batch.
#include <cstdint>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "digits_trainer.h"

namespace {

constexpr std::int64_t kRows = 32, kSide = 28;
constexpr std::uint64_t kSeed = 1;

// The elements of a recorded tensor; its file is a line, "u8 1280 28 28", and the elements.
template <typename Element>
std::vector<Element> Read(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::string line;
    if (!std::getline(file, line))
        throw std::runtime_error(path + " cannot be read");
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    std::vector<Element> found(bytes.size() / sizeof(Element));
    std::memcpy(found.data(), bytes.data(), found.size() * sizeof(Element));
    return found;
}

// A context of the library, which is destroyed with it; what goes wrong is an exception.
class Trainer {
  public:
    explicit Trainer(int threads) {
        char message[256] = "";
        graphc_options options{};
        options.abi = GRAPHC_ABI;
        options.threads = threads;
        options.message = message;
        options.message_bytes = sizeof message;
        digits_trainer_context *made = nullptr;
        if (const auto code = digits_trainer_create(&options, &made); code != GRAPHC_OK)
            throw std::runtime_error(digits_trainer_text(code) + (": " + std::string(message)));
        context_.reset(made);
    }

    void Seed(std::uint64_t seed) { Check(digits_trainer_seed(context_.get(), seed)); }
    void Load(const std::string &path) {
        Check(digits_trainer_state_load_file(context_.get(), path.c_str()));
    }
    void Save(const std::string &path) {
        Check(digits_trainer_state_save_file(context_.get(), path.c_str()));
    }

    // The loss of a step.
    float Step(std::uint8_t *images, std::int64_t *digits) {
        std::int64_t image_shape[] = {kRows, kSide, kSide}, digit_shape[] = {kRows};
        float loss = 0;
        const graphc_tensor given[] = {
            {images, kRows * kSide * kSide, GRAPHC_U8, 3, image_shape},
            {digits, kRows * 8, GRAPHC_I64, 1, digit_shape},
        };
        graphc_tensor made = {&loss, sizeof loss, GRAPHC_F32, 0, nullptr};
        Check(digits_trainer_step(context_.get(), given, &made));
        return loss;
    }

  private:
    struct Destroy {
        void operator()(digits_trainer_context *context) const { digits_trainer_destroy(context); }
    };

    void Check(std::int32_t code) const {
        if (code != GRAPHC_OK)
            throw std::runtime_error(digits_trainer_text(code) +
                                     (": " + std::string(digits_trainer_message(context_.get()))));
    }

    std::unique_ptr<digits_trainer_context, Destroy> context_;
};

struct Recorded {
    explicit Recorded(const std::string &folder)
        : images(Read<std::uint8_t>(folder + "/image.tensor")),
          digits(Read<std::int64_t>(folder + "/digit.tensor")),
          losses(Read<float>(folder + "/loss.tensor")) {}

    std::vector<std::uint8_t> images;
    std::vector<std::int64_t> digits;
    std::vector<float> losses;
};

// How many of the steps' losses have the recorded bits.
std::size_t Train(Trainer &trainer, Recorded &data, std::size_t first, std::size_t last) {
    std::size_t same = 0;
    for (auto step = first; step < last; ++step) {
        const float loss = trainer.Step(&data.images.at(step * kRows * kSide * kSide),
                                        &data.digits.at(step * kRows));
        same += std::memcmp(&loss, &data.losses.at(step), sizeof loss) == 0;
    }
    return same;
}

int Run(const std::string &folder, const std::string &state, std::size_t middle) {
    if (digits_trainer_abi() != GRAPHC_ABI)
        throw std::runtime_error("libdigits_trainer is of another ABI than digits_trainer.h");
    const std::size_t last = Recorded(folder).losses.size();
    if (middle > last)
        throw std::runtime_error("there are " + std::to_string(last) + " recorded batches");
    std::size_t same[3] = {};
    std::exception_ptr failed[2];
    std::vector<std::thread> threads;
    for (int number = 0; number < 2; ++number)
        threads.emplace_back([&, number] {
            try {
                Recorded data(folder);
                Trainer trainer(number + 1);
                trainer.Seed(kSeed);
                same[number] = Train(trainer, data, 0, middle);
                if (number == 0)
                    trainer.Save(state);
            } catch (...) {
                failed[number] = std::current_exception();
            }
        });
    for (auto &thread : threads)
        thread.join();
    for (const auto &each : failed)
        if (each)
            std::rethrow_exception(each);
    Recorded data(folder);
    Trainer trainer(1);
    trainer.Load(state);
    same[2] = Train(trainer, data, middle, last);
    std::cout << "equal to the bit: " << same[0] << " and " << same[1] << " of " << middle
              << " losses, and " << same[2] << " of the " << last - middle << " behind the file\n";
    return same[0] == middle && same[1] == middle && same[2] == last - middle ? 0 : 1;
}

}  // namespace

int main(int argc, char **argv) {
    try {
        if (argc != 4)
            throw std::runtime_error("usage: train FOLDER STATE STEPS-BEFORE-THE-FILE");
        return Run(argv[1], argv[2], std::stoul(argv[3]));
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
