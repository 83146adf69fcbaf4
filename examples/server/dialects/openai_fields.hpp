// Requests of OpenAI's images API as jobs.
#pragma once

#include "http/picture_fields.hpp"
#include "http/request_fields.hpp"
#include "http/service.hpp"

#include <httplib.h>

#include <string>

namespace flux2::server {

enum class ImagesKind { generation, edit };

struct ImagesRequest {
    ImagesKind kind = ImagesKind::generation;
    JobRequest job;
    PictureFormat format;
    std::string quality;  // as it was asked for
    bool as_url = false;  // response_format url
    bool stream = false;
    int partial_images = 0;
    int64_t n_text_tokens = 0;  // estimates, for `usage`
    int64_t n_image_tokens = 0;
};

const FieldTable& generation_fields();
const FieldTable& edit_fields();

// Throws FieldError and StatusError.
ImagesRequest read_images_request(ImagesKind kind, const httplib::Request& request,
                                  const Service& service);

}  // namespace flux2::server
