#include "dialects/all_routes.hpp"

#include "dialects/a1111.hpp"
#include "dialects/native.hpp"
#include "dialects/openai.hpp"
#include "dialects/operations.hpp"

namespace flux2::server {

void add_all_routes(Routes& routes, Service& service) {
    add_operations(routes, service);
    add_openai(routes, service);
    add_a1111(routes, service);
    add_native(routes, service);
    routes.add({.method = "GET",
                .path = "/api/v1/openapi.json",
                .summary = "This description of all routes."},
               [&routes](const httplib::Request&, httplib::Response& response) {
                   answer_json(response, openapi_of(routes.all()));
               });
}

}  // namespace flux2::server
