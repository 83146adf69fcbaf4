#include "http/server_options.hpp"

#include "base/byte_size.hpp"
#include "base/check.hpp"
#include "base/file.hpp"
#include "common/option_values.hpp"

#include <algorithm>
#include <sstream>

namespace flux2::server {
namespace {

using cli::given;
using cli::read_int;
using cli::read_path;
using cli::read_text;
using cli::text;

constexpr size_t kMaxKeyFileBytes = 1 << 20;

std::vector<std::string> split(const std::string& list, char separator) {
    std::vector<std::string> items;
    std::istringstream in(list);
    for (std::string item; std::getline(in, item, separator);) {
        if (item.ends_with('\r')) {
            item.pop_back();
        }
        if (!item.empty()) {
            items.push_back(item);
        }
    }
    return items;
}

void read_list(const cxxopts::ParseResult& args, const char* name,
               std::vector<std::string>& target) {
    if (args.count(name) > 0) {
        target = split(given(args, name), ',');
    }
}

int read_int_from(const cxxopts::ParseResult& args, const char* name, int least, int most,
                  int otherwise) {
    int value = otherwise;
    read_int(args, name, value);
    check(value >= least && value <= most, ErrorKind::bad_argument, "--", name, " ", value,
          " is out of range; use ", least, " to ", most);
    return value;
}

std::chrono::seconds read_seconds(const cxxopts::ParseResult& args, const char* name, int least,
                                  std::chrono::seconds otherwise) {
    constexpr int kMostSeconds = 7 * 24 * 3600;
    return std::chrono::seconds(
        read_int_from(args, name, least, kMostSeconds, static_cast<int>(otherwise.count())));
}

void read_keys(const cxxopts::ParseResult& args, ServerOptions& o) {
    read_list(args, "api-key", o.api_keys);
    if (args.count("api-key-file") > 0) {
        const std::string file = given(args, "api-key-file");
        const auto keys = split(read_text_file(file, kMaxKeyFileBytes), '\n');
        check(!keys.empty(), ErrorKind::bad_file, file, ": holds no key; write one per line");
        o.api_keys.insert(o.api_keys.end(), keys.begin(), keys.end());
    }
}

void read_network_options(const cxxopts::ParseResult& args, ServerOptions& o) {
    read_text(args, "host", o.host);
    check(!o.host.empty(), ErrorKind::bad_argument,
          "--host is given an empty name; use 127.0.0.1 or leave it out");
    o.port = read_int_from(args, "port", 0, 65535, o.port);
    read_keys(args, o);
    read_path(args, "tls-cert", o.tls_certificate);
    read_path(args, "tls-key", o.tls_key);
    check(o.tls_certificate.empty() == o.tls_key.empty(), ErrorKind::bad_argument,
          "TLS needs a certificate and its key; give both --tls-cert and --tls-key");
    read_list(args, "cors-origins", o.cors_origins);
    read_list(args, "allowed-hosts", o.allowed_hosts);
}

void read_limits(const cxxopts::ParseResult& args, ServerOptions& o) {
    o.queue_size = static_cast<size_t>(
        read_int_from(args, "queue-size", 1, 10000, static_cast<int>(o.queue_size)));
    o.http_threads =
        read_int_from(args, "threads-http", 1, 10000, static_cast<int>(o.queue_size) + 32);
    o.timeout = read_seconds(args, "timeout", 1, o.timeout);
    if (args.count("max-body") > 0) {
        o.max_body_bytes = parse_bytes("--max-body", given(args, "max-body"), "size of a request");
    }
    o.idle_time = read_seconds(args, "sleep-idle-seconds", -1, o.idle_time);
    o.idle_time = std::max(o.idle_time, std::chrono::seconds(0));
    o.drain_time = read_seconds(args, "drain-seconds", 0, o.drain_time);
    o.results.pictures = static_cast<size_t>(
        read_int_from(args, "max-results", 1, 1'000'000, static_cast<int>(o.results.pictures)));
    if (args.count("max-results-size") > 0) {
        o.results.bytes =
            parse_bytes("--max-results-size", given(args, "max-results-size"), "size of a folder");
    }
}

}  // namespace

cxxopts::Options describe_server_options() {
    cxxopts::Options options("flux2-server", "Makes pictures with FLUX.2 for clients over HTTP.\n");
    options.custom_help("[-m FOLDER] [options]");
    cli::add_model_options(options);
    options.add_options("Server")  //
        ("host",
         "address to listen on, or a UNIX socket such as /run/flux2.sock (default 127.0.0.1)",
         text())                                                                             //
        ("port", "port, 0: any free one (default 8080)", text())                             //
        ("api-key", "key that clients must send; several with commas between them", text())  //
        ("api-key-file", "file with such keys, one per line", text())                        //
        ("tls-cert", "certificate for HTTPS, a PEM file", text())                            //
        ("tls-key", "its key, a PEM file", text())                                           //
        ("cors-origins",
         "web pages of other origins that may use the server, with commas between them; localhost: "
         "those of this machine, *: all (default: none)",
         text())  //
        ("allowed-hosts",
         "names by which clients address the server, with commas between them; *: any (default: "
         "localhost and addresses)",
         text())                                                                             //
        ("models-dir", "folder of models that requests name, a folder each", text())         //
        ("lora-dir", "folder of LoRAs that requests name", text())                           //
        ("output-dir", "folder where results stay (default: a temporary one)", text())       //
        ("max-results", "pictures it holds, the oldest leave (default 1000)", text())        //
        ("max-results-size", "bytes it holds (default 4G)", text())                          //
        ("queue-size", "requests that may wait (default 64)", text())                        //
        ("threads-http", "connections served at a time (default: queue size + 32)", text())  //
        ("timeout", "seconds for a client to send or take data (default 60)", text())        //
        ("max-body", "largest request (default 100M)", text())                               //
        ("sleep-idle-seconds", "unload the model after so many idle seconds (default: never)",
         text())  //
        ("drain-seconds", "seconds for running jobs after a signal to stop (default 30)",
         text())                                             //
        ("no-webui", "no page for browsers, only the APIs")  //
        ("metrics", "answer GET /metrics for Prometheus")    //
        ("respect-client-steps",
         "obey steps and guidance of clients that always send some, also on distilled models")  //
        ("q,quiet", "no lines for requests, jobs and downloads")                                //
        ("h,help", "print this help");
    return options;
}

ServerOptions read_server_options(const cxxopts::ParseResult& args) {
    ServerOptions o;
    o.model.load.keep_loaded = true;
    cli::read_model_options(args, o.model);
    read_path(args, "models-dir", o.models_folder);
    read_path(args, "lora-dir", o.lora_folder);
    check(o.lora_folder.empty() || is_folder(o.lora_folder), ErrorKind::bad_file,
          o.lora_folder.string(), ": no such folder; --lora-dir takes one with LoRA files");
    read_path(args, "output-dir", o.output_folder);
    read_network_options(args, o);
    read_limits(args, o);
    o.page = args.count("no-webui") == 0;
    o.metrics = args.count("metrics") > 0;
    o.respect_client_steps = args.count("respect-client-steps") > 0;
    o.quiet = args.count("quiet") > 0;
    return o;
}

std::string server_help(const cxxopts::Options& options) {
    return options.help({"Server", "Model"});
}

}  // namespace flux2::server
