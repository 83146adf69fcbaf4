// The routes of the server, each registered together with its description, so that none can be
// missing in the OpenAPI text.
#pragma once

#include "http/answer.hpp"
#include "http/request_fields.hpp"

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <vector>

namespace flux2::server {

struct Route {
    std::string method;                  // "GET", "POST" or "DELETE"
    std::string path;                    // "/api/v1/jobs/:id"
    std::string summary;                 // one sentence
    const FieldTable* fields = nullptr;  // of its body, or of its query for a GET; null: none
    bool takes_form = false;             // besides JSON
    std::string answer = "application/json";
};

// How a dialect answers errors.
using ErrorForm = std::function<nlohmann::json(const HttpError&)>;

class Routes {
  public:
    // `refused` is told the code of every error.
    Routes(httplib::Server& server, std::function<void(const std::string& code)> refused);

    // Exceptions of the handler become answers.
    void add(const Route& route, httplib::Server::Handler handler,
             const ErrorForm& form = openai_error);

    const std::vector<Route>& all() const { return routes_; }
    // "GET, POST": the methods of a path; empty when it has none.
    std::string methods_of(const std::string& path) const;

  private:
    httplib::Server& server_;
    std::function<void(const std::string&)> refused_;
    std::vector<Route> routes_;
};

// The description of all routes as OpenAPI 3.1.
nlohmann::json openapi_of(const std::vector<Route>& routes);

}  // namespace flux2::server
