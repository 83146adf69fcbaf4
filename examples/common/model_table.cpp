#include "common/model_table.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/letter_case.hpp"
#include "base/settings_file.hpp"
#include "common/user_folders.hpp"
#include "formats/json_file.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Where an entry stands, for messages.
struct Place {
    std::string file, entry;

    template <typename... Values>
    void check_here(bool condition, const Values&... values) const {
        check(condition, ErrorKind::bad_file, file, ": ", entry, " ", values...);
    }
};

std::string text_at(const Json& object, const char* key, const Place& place, bool required) {
    const auto found = object.find(key);
    place.check_here(!required || found != object.end(), "has no \"", key, "\"");
    if (found == object.end() || found->is_null()) {
        return "";
    }
    place.check_here(found->is_string(), "has a \"", key, "\" that is no text");
    return found->get<std::string>();
}

TableFile read_file_entry(const Json& entry, const Place& place) {
    place.check_here(entry.is_object(), "has a file that is no object");
    TableFile file;
    file.type = text_at(entry, "type", place, true);
    file.repository = text_at(entry, "repository", place, true);
    file.path = text_at(entry, "file", place, true);
    file.sha256 = text_at(entry, "sha256", place, false);
    if (const auto gated = entry.find("gated"); gated != entry.end() && !gated->is_null()) {
        place.check_here(gated->is_boolean(), "has a \"gated\" that is neither true nor false");
        file.gated = gated->get<bool>();
    }
    if (const auto bytes = entry.find("bytes"); bytes != entry.end() && !bytes->is_null()) {
        place.check_here(bytes->is_number_unsigned(), "has \"bytes\" that are no number");
        file.bytes = bytes->get<uint64_t>();
    }
    if (const auto memory = entry.find("memory_gb"); memory != entry.end() && !memory->is_null()) {
        place.check_here(memory->is_number(), "has a \"memory_gb\" that is no number");
        file.memory_gb = memory->get<double>();
    }
    return file;
}

TablePart read_part(const std::string& name, const Json& entry, const Place& place) {
    place.check_here(entry.is_object(), "is no object");
    TablePart part;
    part.name = name;
    part.licence = text_at(entry, "licence", place, false);
    part.licence_page = text_at(entry, "licence_page", place, false);
    part.path_variable = text_at(entry, "path_variable", place, false);
    if (const auto files = entry.find("files"); files != entry.end()) {
        place.check_here(files->is_array() && !files->empty(), "has no list of \"files\"");
        for (const Json& file : *files) {
            part.files.push_back(read_file_entry(file, place));
        }
    }
    return part;
}

using Parts = std::map<std::string, TablePart>;

void read_parts(const Json& table, const char* key, const std::string& file, Parts& parts) {
    const Json entries = table.value(key, Json::object());
    for (const auto& [name, entry] : entries.items()) {
        const Place place = {file, name};
        parts[name] = read_part(name, entry, place);
        place.check_here(!parts[name].files.empty(), "has no list of \"files\"");
    }
}

TablePart part_named(const Json& entry, const char* key, const Parts& parts, const Place& place) {
    const std::string name = text_at(entry, key, place, true);
    place.check_here(parts.contains(name), "names the ", key, " ", name,
                     ", which the table does not have");
    return parts.at(name);
}

void read_table(const fs::path& path, ModelTable& table, Parts& encoders, Parts& autoencoders) {
    constexpr size_t kMaxTableBytes = 4 << 20;
    const std::string file = path.string();
    const Json json =
        Json::parse(read_text_file(path, kMaxTableBytes), nullptr, /*allow_exceptions=*/false);
    check(json.is_object(), ErrorKind::bad_file, file,
          ": is no valid JSON object; docs/models.md says what it holds");
    for (const auto& [key, value] : json.items()) {
        check((key == "models" || key == "text_encoders" || key == "autoencoders") &&
                  value.is_object(),
              ErrorKind::bad_file, file, ": has '", key,
              "', expected objects models, text_encoders and autoencoders");
    }
    read_parts(json, "text_encoders", file, encoders);
    read_parts(json, "autoencoders", file, autoencoders);
    const Json models = json.value("models", Json::object());
    for (const auto& [name, entry] : models.items()) {
        const Place place = {file, name};
        TableModel model;
        model.transformer = read_part(name, entry, place);
        model.about = text_at(entry, "about", place, false);
        model.is_bundled = entry.value("bundled", false);
        if (!model.is_bundled) {
            place.check_here(!model.transformer.files.empty(), "has no list of \"files\"");
            model.text_encoder = part_named(entry, "text_encoder", encoders, place);
            model.vae = part_named(entry, "vae", autoencoders, place);
        }
        std::erase_if(table.models, [&](const TableModel& other) {
            return to_lower(other.transformer.name) == to_lower(model.transformer.name);
        });
        table.models.push_back(model);
    }
}

}  // namespace

const TableModel* ModelTable::find(const std::string& name) const {
    const auto found = std::find_if(models.begin(), models.end(), [&](const TableModel& model) {
        return to_lower(model.transformer.name) == to_lower(name);
    });
    return found == models.end() ? nullptr : &*found;
}

std::vector<std::string> ModelTable::names() const {
    std::vector<std::string> names;
    for (const TableModel& model : models) {
        names.push_back(model.transformer.name);
    }
    return names;
}

ModelTable read_model_table(const fs::path& own, const fs::path& users) {
    ModelTable table;
    Parts encoders;
    Parts autoencoders;
    for (const fs::path& file : {own, users}) {
        if (!file.empty() && file_exists(file)) {
            read_table(file, table, encoders, autoencoders);
        }
    }
    return table;
}

ModelTable read_model_table() {
    const fs::path users = settings_folder();
    return read_model_table(shared_file("models/models.json"),
                            users.empty() ? fs::path() : users / "models.json");
}

const TableFile* file_of_type(const TablePart& part, const std::string& type) {
    const auto found =
        std::find_if(part.files.begin(), part.files.end(),
                     [&](const TableFile& file) { return to_lower(file.type) == to_lower(type); });
    return found == part.files.end() ? nullptr : &*found;
}

}  // namespace flux2::cli
