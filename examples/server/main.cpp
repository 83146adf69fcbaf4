// The flux2-server program: options, start, and an orderly end after a signal.
#include <flux2/error.hpp>
#include <flux2/log.hpp>
#include "base/check.hpp"
#include "base/guarded_main.hpp"
#include "base/parse_arguments.hpp"
#include "common/cancel.hpp"
#include "common/options.hpp"
#include "dialects/all_routes.hpp"
#include "http/http_server.hpp"
#include "http/log_line.hpp"
#include "http/server_options.hpp"
#include "http/service.hpp"

#include <cxxopts.hpp>

#include <chrono>
#include <iostream>
#include <thread>

namespace flux2::server {
namespace {

using namespace std::chrono_literals;

constexpr auto kLastAnswers = 5s;  // to be sent after the last job

// After the first signal running jobs may end; a second one cancels them.
void drain(Service& service, std::chrono::seconds limit) {
    cli::cancel_requested = false;
    log_line(LogLevel::info, "stopping",
             {{"queued", std::to_string(service.runner().n_queued())},
              {"running", std::to_string(service.runner().n_running())},
              {"seconds", std::to_string(limit.count())}});
    service.runner().stop_accepting();
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!service.runner().wait_idle(50ms)) {
        if (std::chrono::steady_clock::now() >= end || cli::cancel_requested) {
            service.runner().cancel_all();
        }
    }
    // Stopping the server would cut off the last events of its streams.
    const auto last = std::chrono::steady_clock::now() + kLastAnswers;
    while (service.n_held_jobs() > 0 && std::chrono::steady_clock::now() < last) {
        std::this_thread::sleep_for(5ms);
    }
}

int run(int argc, char** argv) {
    cxxopts::Options options = describe_server_options();
    const auto args = parse_arguments(options, argc, argv);
    if (args.count("help") > 0) {
        std::cout << server_help(options);
        return 0;
    }
    cli::check_no_leftovers(args);
    const ServerOptions o =
        naming_places(options, argc, argv, [&] { return read_server_options(args); });
    cli::cancel_on_signals();
    Service service(o);
    HttpServer server(service);
    add_all_routes(server.routes(), service);
    server.listen();
    service.start();
    log_line(LogLevel::info, "ready",
             {{"address", server.address()}, {"model", service.pool().entries().front().name}});
    while (!cli::cancel_requested) {
        std::this_thread::sleep_for(20ms);
    }
    drain(service, o.drain_time);
    server.stop();
    log_line(LogLevel::info, "stopped", {});
    return 0;
}

}  // namespace
}  // namespace flux2::server

int main(int argc, char** argv) {
    flux2::set_log([](flux2::LogLevel level, const std::string& line) {
        if (level >= flux2::LogLevel::warning) {
            flux2::server::log_line(level, "library", {{"text", flux2::cli::in_options(line)}});
        }
    });
    return flux2::guarded_main<cxxopts::exceptions::exception>(
        "flux2-server", flux2::cli::option_of, [&] { return flux2::server::run(argc, argv); });
}
