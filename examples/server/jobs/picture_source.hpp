// What a picture that the server made stores about how it was made: names and hashes, no paths.
#pragma once

#include <flux2/flux2.hpp>
#include "jobs/model_pool.hpp"

#include <nlohmann/json.hpp>

namespace flux2::server {

// The facts of a picture as common/picture_facts has them. Pictures that came with the request have
// no files; they are named as uploads. Waits for the hashes of the model's files.
nlohmann::json facts_of(const ModelEntry& model, const LoadOptions& load, const Pipeline& pipeline,
                        const Request& request, const Result& result);

}  // namespace flux2::server
