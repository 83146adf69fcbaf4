// The table of models that can be named (models/models.json), extended or replaced by the user's
// own: data about files of the Hub, read from JSON.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace flux2::cli {

// One published file of a part. What the table does not know is empty.
struct TableFile {
    std::string type;        // "Q4_K_M"
    std::string repository;  // "owner/name"
    std::string path;        // in it
    std::optional<bool> gated;
    std::optional<uint64_t> bytes;
    std::string sha256;
    std::optional<double> memory_gb;  // of the largest part of a set with this transformer
};

// A part of models in the types it is published in, the usual one first.
struct TablePart {
    std::string name;
    std::string licence, licence_page;
    std::string path_variable;  // names a file to use instead, as in the authors' own program
    std::vector<TableFile> files;
};

// A model: its transformer and the parts that go with it.
struct TableModel {
    TablePart transformer;  // its name is the model's
    std::string about;
    bool is_bundled = false;
    TablePart text_encoder, vae;  // empty when it is bundled
};

struct ModelTable {
    std::vector<TableModel> models;  // in the order of the files

    // By its name, in any case of letters; null when there is none.
    const TableModel* find(const std::string& name) const;
    std::vector<std::string> names() const;
};

// The table that comes with the programs, then the user's own, whose entries replace those of the
// same name. Throws bad_file with file and entry for what cannot be read.
ModelTable read_model_table(const std::filesystem::path& own, const std::filesystem::path& users);
// From where they are installed, and models.json in the user's folder of settings.
ModelTable read_model_table();

// What a file takes of a list of them: that of this type, in any case of letters; null: none.
const TableFile* file_of_type(const TablePart& part, const std::string& type);

}  // namespace flux2::cli
