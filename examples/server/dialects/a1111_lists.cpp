#include "dialects/a1111_lists.hpp"

#include "base/ram.hpp"
#include "base/system.hpp"
#include "dialects/a1111_info.hpp"

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace flux2::server {
namespace {

using nlohmann::json;

json samplers(Service&) {
    return {{{"name", "Euler"}, {"aliases", {"euler", "k_euler"}}, {"options", json::object()}}};
}

json schedulers(Service&) {
    const auto scheduler = [](const char* name, const char* label) {
        return json{{"name", name},
                    {"label", label},
                    {"aliases", nullptr},
                    {"default_rho", -1},
                    {"need_inner_model", false}};
    };
    return {scheduler("automatic", "Automatic"), scheduler("simple", "Simple")};
}

json upscalers(Service&) {
    return {{{"name", "None"},
             {"model_name", nullptr},
             {"model_path", nullptr},
             {"model_url", nullptr},
             {"scale", 1}}};
}

json no_items(Service&) {
    return json::array();
}

json models(Service& service) {
    json list = json::array();
    for (const ModelEntry& model : service.pool().entries()) {
        const std::string hash = service.pool().hash(model);
        list.push_back({{"title", model.name},
                        {"model_name", model.name},
                        {"hash", hash.empty() ? json() : json(hash.substr(0, kShownHash))},
                        {"sha256", hash.empty() ? json() : json(hash)},
                        {"filename", model.files.transformer.filename().string()},
                        {"config", nullptr}});
    }
    return list;
}

// By the names of their files, of all models.
json autoencoders(Service& service) {
    std::set<std::string> names;
    for (const ModelEntry& model : service.pool().entries()) {
        for (const auto& file : {model.files.vae, model.files.taesd}) {
            if (!file.empty()) {
                names.insert(file.filename().string());
            }
        }
    }
    json list = json::array();
    for (const std::string& name : names) {
        list.push_back({{"model_name", name}, {"filename", name}});
    }
    return list;
}

json loras(Service& service) {
    json list = json::array();
    for (const AdapterInfo& lora : service.loras()) {
        const std::string name = lora.path.stem().string();
        json metadata = json::object();
        for (const auto& [key, value] : lora.facts) {
            metadata[key] = value;
        }
        list.push_back({{"name", name}, {"alias", name}, {"path", name}, {"metadata", metadata}});
    }
    return list;
}

json memory(Service&) {
    json ram = json::object();
    json cuda = {{"error", "unavailable"}};
    for (const DeviceInfo& device : list_devices()) {
        const json found = {{"free", device.free_bytes},
                            {"used", device.total_bytes - device.free_bytes},
                            {"total", device.total_bytes}};
        if (device.name == "CPU") {
            ram = found;
            ram["used"] = own_memory_bytes();
        } else if (cuda.contains("error")) {
            cuda = {{"system", found}};
        }
    }
    return {{"ram", ram}, {"cuda", cuda}};
}

json flags(Service& service) {
    return {{"api", true},
            {"nowebui", true},
            {"cors_allow_origins", service.options().cors_origins},
            {"port", service.options().port}};
}

struct ListRoute {
    const char* path;
    const char* summary;
    std::function<json(Service&)> list;
};

}  // namespace

void add_a1111_lists(Routes& routes, Service& service, const ErrorForm& form) {
    const std::vector<ListRoute> lists = {
        {"samplers", "The sampler.", samplers},
        {"schedulers", "The schedules of noise levels; both are the model's own.", schedulers},
        {"upscalers", "Only one that does nothing.", upscalers},
        {"latent-upscale-modes", "None.", no_items},
        {"sd-models", "The models of this server.", models},
        {"sd-vae", "The autoencoders of the models.", autoencoders},
        {"sd-modules", "The same, for clients of Forge.", autoencoders},
        {"loras", "The LoRAs of this server.", loras},
        {"memory", "Memory of the machine.", memory},
        {"cmd-flags", "How the server was started, as far as clients need it.", flags}};
    for (const ListRoute& route : lists) {
        routes.add(
            {.method = "GET",
             .path = std::string("/sdapi/v1/") + route.path,
             .summary = route.summary},
            [&service, list = route.list](const httplib::Request&, httplib::Response& response) {
                answer_json(response, list(service));
            },
            form);
    }
}

}  // namespace flux2::server
