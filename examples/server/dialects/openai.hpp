// OpenAI's images API: /v1/images/generations, /v1/images/edits, /v1/models, /images/ID.png.
#pragma once

#include "http/routes.hpp"
#include "http/service.hpp"

namespace flux2::server {

// The service must outlive the routes. Handlers block until the pictures are made, unless they
// stream events.
void add_openai(Routes& routes, Service& service);

}  // namespace flux2::server
