// The options of flux2-server.
#pragma once

#include "common/options.hpp"
#include "jobs/result_store.hpp"

#include <cxxopts.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace flux2::server {

struct ServerOptions {
    cli::ModelOptions model;
    std::filesystem::path models_folder;  // of models that requests name
    std::filesystem::path lora_folder;    // of LoRAs that requests name

    std::string host = "127.0.0.1";  // a name that ends in .sock is a UNIX socket
    int port = 8080;                 // 0: any free one
    std::vector<std::string> api_keys;
    std::filesystem::path tls_certificate, tls_key;
    std::vector<std::string> cors_origins;   // "*", "localhost", or such as https://example.org
    std::vector<std::string> allowed_hosts;  // names under which clients may address the server

    size_t queue_size = 64;
    int http_threads = 0;                   // 0: the queue's size and 32 more
    std::chrono::seconds timeout{60};       // for a client to send a request or take an answer
    uint64_t max_body_bytes = 100'000'000;  // of a request
    std::chrono::seconds idle_time{0};      // after which models are unloaded; 0: never
    std::chrono::seconds drain_time{30};    // for the jobs that are left when it is told to stop
    std::filesystem::path output_folder;    // of results; empty: a temporary one
    StoreLimits results;
    bool page = true;  // whether browsers get the page
    bool metrics = false;
    bool respect_client_steps = false;
    bool quiet = false;
};

// All options with the help text of the program.
cxxopts::Options describe_server_options();
// Throws bad_argument, and bad_file for a file of keys that cannot be read.
ServerOptions read_server_options(const cxxopts::ParseResult& args);
std::string server_help(const cxxopts::Options& options);

}  // namespace flux2::server
