// Models by name: "klein-4b" or "klein-4b:Q8_0" as files of the table.
#pragma once

#include "common/model_table.hpp"

#include <optional>
#include <string>
#include <vector>

namespace flux2::cli {

// A model of the table in one type, with the parts that go with it. Nothing but the model is set
// when that is bundled.
struct NamedModel {
    TableModel model;
    TableFile transformer, text_encoder, vae;

    // "klein-4b:Q4_K_M"
    std::string name() const;
    // Its files; empty when it is bundled.
    std::vector<TableFile> files() const;
};

// Nothing when the table has no model of this name. Throws bad_argument for a type that it is not
// published in.
std::optional<NamedModel> find_named_model(const ModelTable& table, const std::string& text);

// The model in this file of its transformer.
NamedModel with_partners(const TableModel& model, const TableFile& transformer);

// The model that a repository of a transformer belongs to, by the table or by its name; null when
// nothing tells.
const TableModel* model_of_repository(const ModelTable& table, const std::string& repository);

}  // namespace flux2::cli
