// What makes a picture again: its settings as fields of a job.
#pragma once

#include "http/service.hpp"

#include <nlohmann/json.hpp>

#include <string>

namespace flux2::server {

// {"request": fields of POST /api/v1/jobs, "needs": {"references": how many, "image", "mask":
// whether}} of a picture in the history. The pictures that it needs are not stored. The request is
// null when the settings are broken.
nlohmann::json repeat_of_facts(const Service& service, const nlohmann::json& facts);

// The same of a file, with {"source": "flux2" or "a1111", "unused": what is not understood}. The
// source of a picture without settings that are understood is null, and so is its request. Throws
// FieldError for a broken file.
nlohmann::json repeat_of_file(const Service& service, const std::string& bytes);

}  // namespace flux2::server
