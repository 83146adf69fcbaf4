// flux2 without a subcommand: makes pictures; and flux2 redo, which makes one again.
#pragma once

#include <flux2/flux2.hpp>
#include "commands/display.hpp"
#include "common/model_hash.hpp"
#include "common/options.hpp"
#include "common/output_name.hpp"
#include "common/prompt_tags.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace flux2::cli {

// Generates pictures with a loaded model, reports and writes them. When the options name several
// devices, each of them draws; files, names, seeds and errors are those of one device.
class PictureMaker {
  public:
    // Opens the model. `names` gives the names of all pictures. Throws bad_argument for devices
    // that cannot draw side by side.
    PictureMaker(const GenerateOptions& options, OutputNames names, Display& display);

    // Makes and writes the pictures of these prompts, with the request's adapters and references
    // and then their own. `request` is the result of make_request for the options. Returns the
    // files.
    std::vector<std::filesystem::path> draw(const GenerateOptions& options, Request request,
                                            const std::vector<AdaptedPrompt>& prompts);
    // Of the first device.
    Pipeline& pipeline() { return workers_.front().pipeline; }

  private:
    // What draws on one device.
    struct Worker {
        GenerateOptions options;  // with its device, and the references of its prompt
        Pipeline pipeline;
        Request request;
        std::optional<size_t> prompt;  // that the request is for
        size_t n_encoded = 0;          // prompts up to here were encoded, if they were to be
    };
    // Pictures of one prompt that are drawn in one call.
    struct Batch {
        size_t prompt;
        uint64_t seed;
        int n;
        std::string count;  // "2/10" when there are several
    };
    using Shows = std::function<bool(const Step&)>;

    static std::vector<Batch> make_batches(const GenerateOptions& options, size_t n_prompts);
    void open_workers(const GenerateOptions& options, size_t n_batches);
    void take_prompt(Worker& worker, const GenerateOptions& options,
                     const std::vector<AdaptedPrompt>& prompts, size_t i, const Shows& show);
    std::filesystem::path keep(const GenerateOptions& options, const Result& result,
                               const nlohmann::json& facts);
    std::filesystem::path save(const Result& result, const std::vector<ImageText>& texts);

    OutputNames names_;
    Display& display_;
    std::vector<std::string> devices_;
    ModelFiles files_;
    std::vector<Worker> workers_;  // one, and more once there is work for them
    ModelHashes hashes_;
};

// Prints at which number the names continue, unless that is the first.
void tell_first_number(const OutputNames& names, Display& display);

// The request for these options, with pictures loaded. Tags in its negative prompt are left out,
// with a warning. Throws bad_file for files it names.
Request make_request(const GenerateOptions& options);

// Arguments as main gets them; `argv[0]` is the program or the subcommand.
int generate(int argc, char** argv);
int redo(int argc, char** argv);

}  // namespace flux2::cli
