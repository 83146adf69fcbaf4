// All dialects that the server speaks.
#pragma once

#include "http/routes.hpp"
#include "http/service.hpp"

namespace flux2::server {

// The service must outlive the routes.
void add_all_routes(Routes& routes, Service& service);

}  // namespace flux2::server
