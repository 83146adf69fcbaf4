// flux2 without a subcommand: makes pictures; and flux2 redo, which makes one again.
#pragma once

#include <flux2/flux2.hpp>
#include "commands/display.hpp"
#include "common/model_hash.hpp"
#include "common/options.hpp"
#include "common/output_name.hpp"
#include "common/prompt_tags.hpp"

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace flux2::cli {

// Generates pictures with a loaded model, reports and writes them.
class PictureMaker {
  public:
    // Opens the model. `names` gives the names of all pictures.
    PictureMaker(const GenerateOptions& options, OutputNames names, Display& display);

    // Makes and writes the pictures of these prompts, with the request's adapters and references
    // and then their own. `request` is the result of make_request for the options. Returns the
    // files.
    std::vector<std::filesystem::path> draw(const GenerateOptions& options, Request request,
                                            const std::vector<AdaptedPrompt>& prompts);
    Pipeline& pipeline() { return pipeline_; }

  private:
    size_t encode_ahead(const Request& request, std::span<const AdaptedPrompt> prompts);
    std::vector<std::filesystem::path> draw_batch(const GenerateOptions& options,
                                                  const Request& request, int n,
                                                  const std::string& count);
    std::filesystem::path keep(const GenerateOptions& options, const Request& request,
                               const Result& result);
    std::filesystem::path save(const Result& result, const std::vector<ImageText>& texts);

    OutputNames names_;
    Display& display_;
    ModelFiles files_;
    Pipeline pipeline_;
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
