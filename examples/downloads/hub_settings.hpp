// How the Hugging Face Hub is used: where it is, who asks, where its files are kept. Read from the
// variables that huggingface_hub reads.
#pragma once

#include "downloads/http_connection.hpp"
#include "downloads/url.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace flux2::hub {

struct HubSettings {
    Url endpoint;
    std::string token;               // empty: none
    std::string token_place;         // where it comes from, or is looked for
    std::filesystem::path cache;     // empty when the system names no folder of the user
    std::string offline_reason;      // what forbids requests; empty: nothing
    int connections = 4;             // for one large file
    uint64_t chunk_bytes = 8 << 20;  // that one of them fetches at a time
    // Bytes per second of one connection at which no others are opened: hash and disk hardly take
    // more. 0: others are always opened.
    double enough_rate = 200e6;
    int attempts = 5;                            // in a row without a new byte
    std::chrono::milliseconds first_wait{1000};  // between attempts; doubled each time
    std::chrono::milliseconds longest_wait{60'000};
    HttpSettings http;
};

// Returns the value of an environment variable; null when it is not set.
using Variables = std::function<const char*(const char*)>;

// HF_ENDPOINT (MODEL_ENDPOINT before it), HF_TOKEN or the file HF_TOKEN_PATH or HF_HOME/token,
// HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HF_HUB_OFFLINE, proxies, SSL_CERT_FILE. An empty value
// counts as none. Throws bad_argument for an endpoint that is no address.
HubSettings read_hub_settings(const Variables& variables);
// Those of this process.
HubSettings read_hub_settings();

}  // namespace flux2::hub
