// The devices that this machine and build can compute on.
#pragma once

#include <flux2/export.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace flux2 {

struct DeviceInfo {
    std::string name;         // "CPU", "CUDA0", ...: what LoadOptions::device takes
    std::string description;  // the product's name
    uint64_t free_bytes = 0;  // of the CPU: RAM, within the limits of a container or `ulimit`
    uint64_t total_bytes = 0;
    bool is_software = false;  // a GPU that the CPU imitates: used only when it is named
};

// Without devices of servers that were lost.
FLUX2_API std::vector<DeviceInfo> list_devices();

// Adds the devices that servers lend ("host:port,host:port", each a flux2-rpc-server of this
// version) to those of this process, and returns their names: RPC0, ... A server that is known
// is asked again. Throws bad_argument for what is no address, unsupported when this build lacks
// ggml's RPC, backend when a server cannot be reached or does not match.
FLUX2_API std::vector<std::string> add_servers(const std::string& servers);

struct ServeOptions {
    std::string host = "127.0.0.1";  // an IPv4 address of this machine
    int port = 50052;
    std::vector<std::string> devices;    // empty: all GPUs, else the CPU
    int threads = 0;                     // of the CPU; 0: one per physical core
    std::filesystem::path cache_folder;  // for large tensors that clients send; empty: none
};

// Lends devices to other machines, one client at a time, until the process ends. There is neither
// a password nor encryption: whoever reaches the port can read and write the memory of the process.
// Throws bad_argument, unsupported, or backend when it cannot listen.
[[noreturn]] FLUX2_API void serve_devices(const ServeOptions& options);

}  // namespace flux2
