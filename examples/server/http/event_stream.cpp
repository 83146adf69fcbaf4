#include "http/event_stream.hpp"

#include <chrono>
#include <utility>

namespace flux2::server {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Between two looks at the connection, which notices only then that the client is gone.
constexpr auto kConnectionCheck = 50ms;
// Proxies close connections that are silent for a minute or less.
constexpr auto kKeepAlive = 10s;

// What one answer remembers between its calls.
struct Stream {
    const Job& job;
    EventWriter writer;
    uint64_t seen = ~uint64_t{0};  // no change yet
    Clock::time_point written = Clock::now();

    bool write(httplib::DataSink& sink) {
        const JobStatus status = job.wait(seen, kConnectionCheck);
        std::string text = status.sequence == seen ? "" : writer(status);
        seen = status.sequence;
        if (text.empty() && Clock::now() - written >= kKeepAlive) {
            text = ": keep-alive\n\n";
        }
        if (!text.empty()) {
            written = Clock::now();
            if (!sink.write(text.data(), text.size())) {
                return false;
            }
        }
        if (status.has_ended()) {
            sink.done();
        }
        return true;
    }
};

}  // namespace

std::string event_text(const std::string& name, const nlohmann::json& data) {
    return "event: " + name + "\ndata: " + to_text(data) + "\n\n";
}

void stream_events(httplib::Response& response, const Job& job, EventWriter writer,
                   std::function<void()> on_end) {
    response.set_header("Cache-Control", "no-cache");
    response.set_header("X-Accel-Buffering", "no");  // nginx would collect the events
    const auto stream = std::make_shared<Stream>(Stream{job, std::move(writer)});
    response.set_chunked_content_provider(
        "text/event-stream",
        [stream](size_t, httplib::DataSink& sink) { return stream->write(sink); },
        [on_end = std::move(on_end)](bool) { on_end(); });
}

}  // namespace flux2::server
