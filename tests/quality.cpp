// How well the bundled model draws with each type of weights, as a Markdown table:
//
//     flux2-quality FOLDER [TYPE...]
//
// Transformer and text encoder are converted to each type by flux2-convert. The held-out prompts
// are drawn, read by picture_book and compared with the pictures of F32 weights. Converted files
// and pictures stay in the folder; what is wrong with a picture goes to standard error.
#include <flux2/flux2.hpp>
#include "base/check.hpp"
#include "base/guarded_main.hpp"
#include "support/folders.hpp"
#include "support/picture_book.hpp"

#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

const fs::path kTiny = test::tiny_model();
const ModelFiles kBundled = {kTiny / "flux2-tiny-bf16.gguf", kTiny / "text-encoder-bf16.gguf",
                             kTiny / "vae-bf16.gguf"};
const std::vector<std::string> kTypes = {"BF16",   "F16",  "Q8_0",   "Q6_K", "Q5_K_M",
                                         "Q4_K_M", "Q4_0", "Q3_K_M", "Q2_K"};

fs::path converted(const fs::path& file, const std::string& type, const fs::path& folder) {
    fs::create_directories(folder);
    const fs::path out = folder / file.filename();
    const std::string command = std::string(FLUX2_CONVERT_PROGRAM) + " '" + file.string() +
                                "' -o '" + out.string() + "' --type " + type + " > '" +
                                (folder / "convert.log").string() + "' 2>&1";
    check(std::system(command.c_str()) == 0, ErrorKind::internal, "flux2-convert failed; see ",
          (folder / "convert.log").string());
    return out;
}

struct Drawing {
    std::vector<Image> pictures;
    int n_right = 0;
};

// All prompts, each with its number as seed.
Drawing draw(const std::vector<test::HeldOutPrompt>& prompts, const ModelFiles& files,
             const std::string& type, const fs::path& folder) {
    LoadOptions options;
    options.device = "CPU";
    options.type = type;
    options.keep_loaded = true;
    Pipeline pipeline = Pipeline::load(files, options);
    Drawing drawing;
    for (size_t i = 0; i < prompts.size(); ++i) {
        Request request;
        request.prompt = prompts[i].prompt;
        request.seed = i;
        const Image image = pipeline.generate(request).image;
        fs::create_directories(folder);
        save_image(folder / (std::to_string(i) + ".png"), image);
        const std::string mistakes = test::mistakes(image, prompts[i].scene);
        if (mistakes.empty()) {
            ++drawing.n_right;
        } else {
            std::cerr << (folder / std::to_string(i)).string() << ".png: " << mistakes << std::endl;
        }
        drawing.pictures.push_back(image);
    }
    return drawing;
}

double mean_psnr(const Drawing& a, const Drawing& b) {
    double sum = 0;
    for (size_t i = 0; i < a.pictures.size(); ++i) {
        sum += test::psnr(a.pictures[i], b.pictures[i]);
    }
    return sum / static_cast<double>(a.pictures.size());
}

int run(const std::vector<std::string>& arguments) {
    check(!arguments.empty(), ErrorKind::bad_argument,
          "name a folder for pictures: flux2-quality FOLDER [TYPE...]");
    const fs::path folder = arguments[0];
    std::vector<std::string> types(arguments.begin() + 1, arguments.end());
    if (types.empty()) {
        types = kTypes;
    }
    const auto prompts = test::read_held_out_prompts(fs::path(test::recorded_folder()) /
                                                     "tiny/held_out_prompts.json");
    const Drawing exact = draw(prompts, kBundled, "F32", folder / "F32");
    std::cout << std::fixed << std::setprecision(1)
              << "| type | transformer and text encoder, MB | right of " << prompts.size()
              << " | mean PSNR against F32, dB |\n|---|---|---|---|\n"
              << "| F32 | | " << exact.n_right << " | |" << std::endl;
    for (const std::string& type : types) {
        const fs::path place = folder / type;
        const ModelFiles files = {converted(kBundled.transformer, type, place),
                                  converted(kBundled.text_encoder, type, place), kBundled.vae};
        const auto bytes = fs::file_size(files.transformer) + fs::file_size(files.text_encoder);
        const Drawing drawing = draw(prompts, files, "", place);
        std::cout << "| " << type << " | " << static_cast<double>(bytes) / 1e6 << " | "
                  << drawing.n_right << " | " << mean_psnr(exact, drawing) << " |" << std::endl;
    }
    return 0;
}

}  // namespace
}  // namespace flux2

int main(int argc, char** argv) {
    const auto plain = [](flux2::Setting setting) { return flux2::to_string(setting); };
    return flux2::guarded_main<std::invalid_argument>("flux2-quality", plain, [&] {
        return flux2::run({argv + 1, argv + argc});
    });
}
