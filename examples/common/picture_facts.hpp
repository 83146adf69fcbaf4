// Metadata in a picture about how it was made: a line as other programs write it, and our own JSON,
// from which it can be made again.
#pragma once

#include <flux2/flux2.hpp>
#include "common/model_hash.hpp"
#include "common/options.hpp"

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace flux2::cli {

// How pictures name the files that they were made from.
enum class FileNames {
    paths,  // in full, so that the picture can be made again on this machine
    names,  // without folders, for pictures that leave it
};

// Everything that determines the picture, as JSON.
nlohmann::json picture_facts(const GenerateOptions& options, const ModelFiles& files,
                             ModelHashes& hashes, const Pipeline& pipeline, const Request& request,
                             const Result& result, FileNames names = FileNames::paths);

// The texts of a picture: `parameters` in the form of AUTOMATIC1111's web interface, and `flux2`.
std::vector<ImageText> picture_texts(const nlohmann::json& facts);

// Our JSON in a picture. Throws bad_file when it has none or a broken one.
nlohmann::json read_picture_facts(const std::filesystem::path& picture);

// Options that make a picture again, from our JSON in it, else from what another program stored.
// Throws bad_file when neither is there or understood.
GenerateOptions options_of_picture(const std::filesystem::path& picture);
// The same from the texts of a picture that messages call by this name.
GenerateOptions options_of_texts(const std::vector<ImageText>& texts,
                                 const std::filesystem::path& picture);

// A line for each part and adapter whose file is not the one that made the stored picture, by the
// options' stored hashes.
std::vector<std::string> other_model_files(const GenerateOptions& options,
                                           const nlohmann::json& facts);

// Options that make the same picture again. Throws bad_file for invalid values.
GenerateOptions options_from_facts(const nlohmann::json& facts,
                                   const std::filesystem::path& picture);

}  // namespace flux2::cli
