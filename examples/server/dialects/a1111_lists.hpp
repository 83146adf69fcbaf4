// What A1111's API offers to choose from: models and LoRAs of this server, and lists that are
// always the same here.
#pragma once

#include "http/routes.hpp"
#include "http/service.hpp"

namespace flux2::server {

// samplers, schedulers, upscalers, latent-upscale-modes, sd-models, sd-vae, sd-modules, loras,
// memory, cmd-flags. The service must outlive the routes.
void add_a1111_lists(Routes& routes, Service& service, const ErrorForm& form);

}  // namespace flux2::server
