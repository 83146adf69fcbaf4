// Requests of our own API as jobs: everything that the library can do.
#pragma once

#include "http/request_fields.hpp"
#include "http/service.hpp"

#include <httplib.h>

namespace flux2::server {

const FieldTable& native_fields();

// Throws FieldError and StatusError.
JobRequest read_native_request(const httplib::Request& request, const Service& service);

}  // namespace flux2::server
