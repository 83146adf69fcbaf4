// Requests of A1111's API as jobs.
#pragma once

#include "http/request_fields.hpp"
#include "http/service.hpp"

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <string>

namespace flux2::server {

enum class A1111Kind { txt2img, img2img };

struct A1111Request {
    JobRequest job;  // of the first batch; the seed is set
    int n_batches = 1;
    bool send_images = true;
    // What was asked for and is not done, and why, in words; empty: nothing.
    std::string ignored;
    nlohmann::json parameters;  // the request as the answer repeats it: without pictures
};

const FieldTable& txt2img_fields();
const FieldTable& img2img_fields();

// The model of this title: a name, maybe followed by a hash in brackets. Throws StatusError 404.
const ModelEntry& a1111_model(const Service& service, const std::string& title);

// `chosen` is the model of requests that name none. Throws FieldError and StatusError.
A1111Request read_a1111_request(A1111Kind kind, const httplib::Request& request,
                                const Service& service, const std::string& chosen);

}  // namespace flux2::server
