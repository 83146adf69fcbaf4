#include "support/train_case.hpp"

#include <fstream>

namespace flux2::test {

namespace fs = std::filesystem;

bool says(const ProgramResult& result, const std::string& piece) {
    return result.err.find(piece) != std::string::npos;
}

std::string TrainCase::command(const Arguments& arguments) const {
    std::string line = quoted(train_path()) + " -m " + quoted(kBundledModel.string()) +
                       " --threads 2 --cache " + quoted((folder / "cache").string());
    for (const std::string& argument : arguments) {
        line += " " + quoted(argument);
    }
    return line;
}

ProgramResult TrainCase::run(const Arguments& arguments) const {
    return run_program("OMP_WAIT_POLICY=passive " + command(arguments));
}

std::string TrainCase::few_pictures() const {
    fs::create_directories(folder / "few");
    for (const char* name : {"00", "01", "02", "03"}) {
        for (const char* extension : {".png", ".txt"}) {
            fs::copy_file(kBlueprints / (std::string(name) + extension),
                          folder / (std::string("few/") + name + extension),
                          fs::copy_options::overwrite_existing);
        }
    }
    return in("few");
}

Arguments TrainCase::short_run(const std::string& output) const {
    return {"-d",
            few_pictures(),
            "--resolution",
            "64",
            "--batch_size",
            "2",
            "--network_dim",
            "4",
            "--output_dir",
            in(output),
            "--learning_rate",
            "1e-3"};
}

std::vector<nlohmann::json> metrics_in(const fs::path& file) {
    std::vector<nlohmann::json> lines;
    std::ifstream stream(file);
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
}

std::vector<double> validation_losses(const fs::path& file) {
    std::vector<double> losses;
    for (const nlohmann::json& line : metrics_in(file)) {
        if (line.contains("validation_loss")) {
            losses.push_back(line["validation_loss"].get<double>());
        }
    }
    return losses;
}

}  // namespace flux2::test
