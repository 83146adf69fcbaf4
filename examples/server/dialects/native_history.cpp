#include "base/check.hpp"
#include "base/utf8.hpp"
#include "dialects/native.hpp"
#include "dialects/native_repeat.hpp"

namespace flux2::server {
namespace {

using nlohmann::json;

constexpr double kMostPerPage = 200;
constexpr int kUsualPerPage = 50;

const FieldTable& history_fields() {
    static const FieldTable table = {
        {"before", FieldKind::text, "only pictures older than this id: the next page", 0, 40},
        {"limit", FieldKind::integer, "pictures per page", 1, kMostPerPage},
        {"search", FieldKind::text, "only pictures whose prompt contains this", 0, 1000}};
    return table;
}

json entry_json(const Service& service, const std::string& id, const json& facts) {
    json entry = repeat_of_facts(service, facts);
    entry["id"] = id;
    entry["url"] = "/images/" + id + ".png";
    entry["thumbnail"] = "/api/v1/history/" + id + "/thumbnail";
    entry["settings"] = facts;
    return entry;
}

[[noreturn]] void fail_not_found(const std::string& id) {
    throw StatusError(
        404, "picture_not_found",
        concat("there is no picture ", utf8_start(id, 40), "; results leave the store in time"));
}

void list_history(Service& service, const httplib::Request& request, httplib::Response& response) {
    const RequestFields fields = RequestFields::from_query(history_fields(), request.params);
    const auto limit = static_cast<size_t>(fields.integer("limit").value_or(kUsualPerPage));
    const auto page = service.store().page(fields.text("before"), limit, fields.text("search"));
    json pictures = json::array();
    for (const StoredPicture& picture : page) {
        pictures.push_back(entry_json(service, picture.id, picture.facts));
    }
    const bool may_be_more = page.size() == limit;
    answer_json(response, {{"pictures", pictures},
                           {"next", may_be_more ? json(page.back().id) : json()},
                           {"total", service.store().size()}});
}

}  // namespace

void add_native_history(Routes& routes, Service& service) {
    using Request = httplib::Request;
    using Response = httplib::Response;
    routes.add({.method = "GET",
                .path = "/api/v1/history",
                .summary = "Finished pictures with their settings, from new to old.",
                .fields = &history_fields()},
               [&](const Request& request, Response& response) {
                   list_history(service, request, response);
               });
    routes.add({.method = "GET",
                .path = "/api/v1/history/:id",
                .summary = "The settings of a finished picture."},
               [&](const Request& request, Response& response) {
                   const std::string& id = request.path_params.at("id");
                   const auto facts = service.store().facts(id);
                   if (!facts) {
                       fail_not_found(id);
                   }
                   answer_json(response, entry_json(service, id, *facts));
               });
    routes.add({.method = "GET",
                .path = "/api/v1/history/:id/thumbnail",
                .summary = "A small version of it, at most 256 pixels wide and high.",
                .answer = "image/jpeg"},
               [&](const Request& request, Response& response) {
                   const std::string& id = request.path_params.at("id");
                   const auto bytes = service.store().thumbnail(id);
                   if (!bytes) {
                       fail_not_found(id);
                   }
                   response.set_header("Cache-Control", "private, max-age=31536000, immutable");
                   response.set_content(*bytes, "image/jpeg");
               });
    routes.add({.method = "DELETE",
                .path = "/api/v1/history/:id",
                .summary = "Deletes a finished picture."},
               [&](const Request& request, Response& response) {
                   const std::string& id = request.path_params.at("id");
                   if (!service.store().remove(id)) {
                       fail_not_found(id);
                   }
                   answer_json(response, {{"id", id}, {"deleted", true}});
               });
}

}  // namespace flux2::server
