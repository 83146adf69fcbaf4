#include "common/model_choice.hpp"

#include "base/system.hpp"

#include <iostream>

namespace flux2::cli {

namespace fs = std::filesystem;

ModelFiles choose_files(const ModelOptions& model, bool quiet) {
    const ModelFiles& named = model.files;
    const bool nothing_named = model.folder.empty() && named.transformer.empty() &&
                               named.text_encoder.empty() && named.vae.empty();
    const fs::path folder = nothing_named ? bundled_model() : model.folder;
    if (folder.empty()) {
        return named;
    }
    const FoundModel found = find_model(folder, model.load.variant, named);
    if (!quiet) {
        std::cerr << (nothing_named ? "no model named (-m FOLDER), so the bundled toy: "
                                    : "model: ")
                  << found.choice << std::endl;
    }
    return found.files;
}

fs::path bundled_model() {
    const fs::path source_tree = FLUX2_SOURCE_FOLDER;
    for (const fs::path& folder : {program_folder() / ".." / "share" / "flux2" / "models" / "tiny",
                                   source_tree / "models" / "tiny"}) {
        std::error_code ignored;
        if (fs::is_directory(folder, ignored)) {
            return folder;
        }
    }
    return {};
}

}  // namespace flux2::cli
