#include "http/routes.hpp"

#include <flux2/version.hpp>
#include "base/check.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

namespace flux2::server {
namespace {

using nlohmann::json;

std::vector<std::string> segments_of(const std::string& path) {
    std::vector<std::string> segments;
    std::istringstream in(path);
    for (std::string segment; std::getline(in, segment, '/');) {
        segments.push_back(segment);
    }
    return segments;
}

bool fits(const std::string& pattern, const std::string& path) {
    const auto expected = segments_of(pattern);
    const auto found = segments_of(path);
    return std::equal(expected.begin(), expected.end(), found.begin(), found.end(),
                      [](const std::string& a, const std::string& b) {
                          return a == b || (a.starts_with(":") && !b.empty());
                      });
}

}  // namespace

Routes::Routes(httplib::Server& server, std::function<void(const std::string&)> refused)
    : server_(server), refused_(std::move(refused)) {}

void Routes::add(const Route& route, httplib::Server::Handler handler, const ErrorForm& form) {
    routes_.push_back(route);
    const auto guarded = [this, handler = std::move(handler), form](const httplib::Request& request,
                                                                    httplib::Response& response) {
        try {
            handler(request, response);
        } catch (const std::exception& problem) {
            const HttpError error = http_error(problem);
            refused_(error.code.empty() ? error.type : error.code);
            answer_error(response, error, form(error));
        }
    };
    if (route.method == "GET") {
        server_.Get(route.path, guarded);
    } else if (route.method == "DELETE") {
        server_.Delete(route.path, guarded);
    } else {
        server_.Post(route.path, guarded);
    }
}

std::string Routes::methods_of(const std::string& path) const {
    std::string methods;
    for (const Route& route : routes_) {
        if (fits(route.path, path)) {
            methods += (methods.empty() ? "" : ", ") + route.method;
        }
    }
    return methods;
}

namespace {

// "/api/v1/jobs/:id" -> "/api/v1/jobs/{id}" and a description of its parameter.
std::pair<std::string, json> described_path(const std::string& path) {
    std::string text;
    json parameters = json::array();
    for (const std::string& segment : segments_of(path)) {
        const bool is_parameter = segment.starts_with(":");
        const std::string name = is_parameter ? segment.substr(1) : segment;
        if (is_parameter) {
            parameters.push_back({{"name", name},
                                  {"in", "path"},
                                  {"required", true},
                                  {"schema", {{"type", "string"}}}});
        }
        text += text.empty() && segment.empty() ? ""
                : is_parameter                  ? "/{" + name + "}"
                                                : "/" + name;
    }
    return {text.empty() ? "/" : text, parameters};
}

json described_route(const Route& route, json parameters) {
    json described = {
        {"summary", route.summary},
        {"responses",
         {{"200", {{"description", "done"}, {"content", {{route.answer, json::object()}}}}},
          {"default",
           {{"description", "an error with a sentence"},
            {"content", {{"application/json", json::object()}}}}}}}};
    if (route.fields != nullptr && route.method == "POST") {
        const json schema = {{"schema", schema_of(*route.fields)}};
        described["requestBody"]["content"]["application/json"] = schema;
        if (route.takes_form) {
            described["requestBody"]["content"]["multipart/form-data"] = schema;
        }
    } else if (route.fields != nullptr) {
        const json schema = schema_of(*route.fields);
        for (const auto& [name, type] : schema["properties"].items()) {
            parameters.push_back({{"name", name}, {"in", "query"}, {"schema", type}});
        }
    }
    if (!parameters.empty()) {
        described["parameters"] = std::move(parameters);
    }
    return described;
}

}  // namespace

json openapi_of(const std::vector<Route>& routes) {
    json paths = json::object();
    for (const Route& route : routes) {
        auto [path, parameters] = described_path(route.path);
        std::string method = route.method;
        std::transform(method.begin(), method.end(), method.begin(),
                       [](char c) { return static_cast<char>(c - 'A' + 'a'); });
        paths[path][method] = described_route(route, std::move(parameters));
    }
    return {{"openapi", "3.1.0"},
            {"info", {{"title", "flux2-server"}, {"version", version()}}},
            {"paths", paths}};
}

}  // namespace flux2::server
