// The API of AUTOMATIC1111's web interface and of Forge: /sdapi/v1/, and / for clients of Draw
// Things.
#pragma once

#include "http/routes.hpp"
#include "http/service.hpp"

namespace flux2::server {

// The service must outlive the routes. The handlers of txt2img and img2img block until the pictures
// are made.
void add_a1111(Routes& routes, Service& service);

}  // namespace flux2::server
