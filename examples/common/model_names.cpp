#include "common/model_names.hpp"

#include "base/check.hpp"
#include "base/letter_case.hpp"

#include <algorithm>

namespace flux2::cli {
namespace {

// A text encoder of the transformer's type where there is one, else of the nearest.
const TableFile& partner_of(const TablePart& part, const std::string& type) {
    const std::string lower = to_lower(type);
    const bool is_small = lower.starts_with("q2") || lower.starts_with("q3") ||
                          lower.starts_with("q4") || lower.starts_with("q5");
    for (const std::string& candidate : {type, std::string(is_small ? "" : "Q8_0")}) {
        if (const TableFile* file = file_of_type(part, candidate)) {
            return *file;
        }
    }
    return part.files.front();
}

std::string types_of(const TablePart& part) {
    std::string text;
    for (const TableFile& file : part.files) {
        text += (text.empty() ? "" : ", ") + file.type;
    }
    return text;
}

}  // namespace

std::string NamedModel::name() const {
    return model.transformer.name + (model.is_bundled ? "" : ":" + transformer.type);
}

std::vector<TableFile> NamedModel::files() const {
    return model.is_bundled ? std::vector<TableFile>{}
                            : std::vector<TableFile>{transformer, text_encoder, vae};
}

NamedModel with_partners(const TableModel& model, const TableFile& transformer) {
    return {model, transformer, partner_of(model.text_encoder, transformer.type),
            model.vae.files.front()};
}

std::optional<NamedModel> find_named_model(const ModelTable& table, const std::string& text) {
    const size_t colon = text.find(':');
    const TableModel* model = table.find(text.substr(0, colon));
    if (model == nullptr) {
        return std::nullopt;
    }
    const std::string type = colon == std::string::npos ? "" : text.substr(colon + 1);
    if (model->is_bundled) {
        check(type.empty(), ErrorKind::bad_argument, text, ": ", model->transformer.name,
              " is bundled with the programs and has no types to choose from");
        return NamedModel{*model, {}, {}, {}};
    }
    const TableFile* file =
        type.empty() ? &model->transformer.files.front() : file_of_type(model->transformer, type);
    check(file != nullptr, ErrorKind::bad_argument, text, ": ", model->transformer.name,
          " is published as ", types_of(model->transformer), ", not as ", type, "; flux2 pull ",
          model->transformer.name, " --convert ", type, " makes it");
    return with_partners(*model, *file);
}

const TableModel* model_of_repository(const ModelTable& table, const std::string& repository) {
    const std::string lower = to_lower(repository);
    const TableModel* best = nullptr;
    for (const TableModel& model : table.models) {
        for (const TableFile& file : model.transformer.files) {
            // A repository that holds several models tells nothing.
            if (to_lower(file.repository) == lower &&
                to_lower(file.path).find('/') == std::string::npos) {
                return &model;
            }
        }
        const bool occurs =
            !model.is_bundled && lower.find(to_lower(model.transformer.name)) != std::string::npos;
        if (occurs &&
            (best == nullptr || model.transformer.name.size() > best->transformer.name.size())) {
            best = &model;
        }
    }
    return best;
}

}  // namespace flux2::cli
