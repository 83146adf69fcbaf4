#include "dialects/operations.hpp"

namespace flux2::server {
namespace {

void answer_health(Service& service, httplib::Response& response) {
    if (!service.is_ready()) {
        const HttpError loading = {503, "unavailable_error", "loading", "", "Loading model", 1};
        answer_error(response, loading, openai_error(loading));
    } else if (!service.runner().is_accepting()) {
        const HttpError stopping = {503, "unavailable_error", "stopping", "", "Stopping"};
        answer_error(response, stopping, openai_error(stopping));
    } else {
        answer_json(response, {{"status", "ok"}});
    }
}

}  // namespace

void add_operations(Routes& routes, Service& service) {
    for (const char* path : {"/health", "/v1/health"}) {
        routes.add({.method = "GET",
                    .path = path,
                    .summary = "Whether the server takes requests: 503 while it loads or stops."},
                   [&](const httplib::Request&, httplib::Response& response) {
                       answer_health(service, response);
                   });
    }
    if (service.options().metrics) {
        routes.add({.method = "GET",
                    .path = "/metrics",
                    .summary = "Counters for Prometheus.",
                    .answer = "text/plain"},
                   [&](const httplib::Request&, httplib::Response& response) {
                       response.set_content(
                           service.metrics().text(service.runner(), service.store()),
                           "text/plain; version=0.0.4");
                   });
    }
}

}  // namespace flux2::server
