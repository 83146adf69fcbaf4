#include "compute/remote.hpp"

#include <flux2/device.hpp>
#include "base/check.hpp"
#include "base/comma_list.hpp"
#include "base/log.hpp"
#include "base/parse_number.hpp"
#include "base/system.hpp"
#include "compute/backend.hpp"

#include <ggml-rpc.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <vector>

namespace flux2 {
namespace {

using AddServer = ggml_backend_reg_t (*)(const char* endpoint);
using Failure = bool (*)(const char* endpoint, char* reason, size_t size);
using StartServer = void (*)(const char* endpoint, const char* cache_folder, size_t n_threads,
                             size_t n_devices, ggml_backend_dev_t* devices);

constexpr size_t kMostServers = GGML_RPC_MAX_SERVERS;

// Of ggml's registry entry for RPC; null when this build has none.
template <typename Function>
Function find_function(const char* name) {
    const ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
    return rpc == nullptr
               ? nullptr
               : reinterpret_cast<Function>(ggml_backend_reg_get_proc_address(rpc, name));
}

template <typename Function>
Function needed_function(const char* name) {
    check(ggml_backend_reg_by_name("RPC") != nullptr, ErrorKind::unsupported,
          "this build cannot use devices of other machines; build it with -DFLUX2_RPC=ON");
    const auto function = find_function<Function>(name);
    check(function != nullptr && find_function<Failure>("flux2_rpc_failure") != nullptr,
          ErrorKind::unsupported,
          "the ggml of this build ends the program when a server is lost; build with the pinned "
          "ggml to use devices of other machines");
    return function;
}

std::optional<std::string> failure_of(const std::string& endpoint) {
    const auto failure = find_function<Failure>("flux2_rpc_failure");
    std::array<char, 512> reason = {};
    if (failure == nullptr || !failure(endpoint.c_str(), reason.data(), reason.size())) {
        return std::nullopt;
    }
    return reason.data();
}

bool is_port(const std::string& text) {
    constexpr size_t kMostDigits = 5;
    constexpr int kMostPort = 65535;
    return !text.empty() && text.size() <= kMostDigits &&
           text.find_first_not_of("0123456789") == std::string::npos && std::stoi(text) >= 1 &&
           std::stoi(text) <= kMostPort;
}

// The address that ggml takes, of one that users type.
std::string checked_address(const std::string& server) {
    const size_t colon = server.rfind(':');
    check(colon != std::string::npos && colon > 0 && server.find(':') == colon &&
              is_port(server.substr(colon + 1)),
          ErrorKind::bad_argument, "'", server,
          "' is no address of a server; use HOST:PORT such as 192.168.0.2:50052");
    return server;
}

}  // namespace

bool is_remote(ggml_backend_dev_t device) {
    return std::string(ggml_backend_reg_name(ggml_backend_dev_backend_reg(device))) == "RPC";
}

std::optional<std::string> why_lost(ggml_backend_dev_t device) {
    return is_remote(device) ? failure_of(ggml_backend_dev_description(device)) : std::nullopt;
}

std::vector<std::string> add_servers(const std::string& servers) {
    const auto add = needed_function<AddServer>("ggml_backend_rpc_add_server");
    static std::mutex mutex;
    static std::set<std::string> added;
    const std::lock_guard lock(mutex);
    std::vector<std::string> addresses;
    for (const std::string& server : split_list(servers)) {
        addresses.push_back(checked_address(server));
    }
    std::set<std::string> all = added;
    all.insert(addresses.begin(), addresses.end());
    check(all.size() <= kMostServers, ErrorKind::bad_argument, all.size(),
          " servers are too many; ", kMostServers, " can be used");
    std::vector<std::string> names;
    for (const std::string& address : addresses) {
        const ggml_backend_reg_t server = add(address.c_str());
        size_t free = 0;
        size_t total = 0;
        if (server != nullptr) {  // one that is known is asked again
            ggml_backend_dev_memory(ggml_backend_reg_dev_get(server, 0), &free, &total);
        }
        const auto failure = failure_of(address);
        check(server != nullptr && !failure, ErrorKind::backend, "the server ", address, " ",
              failure.value_or("lends no devices"),
              "; start a flux2-rpc-server of this version there, and check address and port");
        if (added.insert(address).second) {
            ggml_backend_register(server);
        }
        for (size_t i = 0; i < ggml_backend_reg_dev_count(server); ++i) {
            names.emplace_back(ggml_backend_dev_name(ggml_backend_reg_dev_get(server, i)));
        }
    }
    return names;
}

void serve_devices(const ServeOptions& options) {
    const auto start = needed_function<StartServer>("ggml_backend_rpc_start_server");
    const std::string host = options.host == "localhost" ? "127.0.0.1" : options.host;
    const std::string address = checked_address(concat(host, ":", options.port));
    check(host.find_first_not_of("0123456789.") == std::string::npos, ErrorKind::bad_argument, "'",
          options.host, "' is no IPv4 address to listen on; use 127.0.0.1, or 0.0.0.0 for all");
    std::vector<ggml_backend_dev_t> devices;
    for (const std::string& name : options.devices) {
        devices.push_back(ggml_backend_dev_by_name(device_name(name).c_str()));
    }
    if (devices.empty()) {
        for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
            const ggml_backend_dev_t device = ggml_backend_dev_get(i);
            const auto type = ggml_backend_dev_type(device);
            if (!is_remote(device) &&
                (type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU)) {
                devices.push_back(device);
            }
        }
    }
    if (devices.empty()) {
        devices.push_back(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
    }
    if (!host.starts_with("127.")) {
        log(LogLevel::warning,
            concat("whoever reaches ", address,
                   " can use the devices, and read and write the memory of this program: there is "
                   "neither a password nor encryption. Do this in a trusted network only."));
    }
    const std::string cache =
        options.cache_folder.empty() ? "" : options.cache_folder.string() + "/";
    const int threads = options.threads > 0 ? options.threads : physical_cores();
    start(address.c_str(), cache.empty() ? nullptr : cache.c_str(), static_cast<size_t>(threads),
          devices.size(), devices.data());
    fail(ErrorKind::backend, "cannot listen on ", address,
         "; another program may use the port, or the address is not one of this machine");
}

}  // namespace flux2
