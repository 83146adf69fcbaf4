// Our own API under /api/v1: jobs, plans, models, history. Only a plan and loading a model block.
#pragma once

#include "http/routes.hpp"
#include "http/service.hpp"

namespace flux2::server {

// The service must outlive the routes.
void add_native(Routes& routes, Service& service);
// The part of it about jobs.
void add_native_jobs(Routes& routes, Service& service);
// The part of it about finished pictures.
void add_native_history(Routes& routes, Service& service);

}  // namespace flux2::server
