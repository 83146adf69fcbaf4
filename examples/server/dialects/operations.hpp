// Routes for operators: whether the server is up, and what it counts.
#pragma once

#include "http/routes.hpp"
#include "http/service.hpp"

namespace flux2::server {

// The service must outlive the routes.
void add_operations(Routes& routes, Service& service);

}  // namespace flux2::server
