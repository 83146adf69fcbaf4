// Answers as server-sent events while a job runs.
#pragma once

#include "http/service.hpp"

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <string>

namespace flux2::server {

// One event: "event: NAME\ndata: JSON\n\n".
std::string event_text(const std::string& name, const nlohmann::json& data);

// Returns the events that a change of the job brings, as texts after each other. Called from the
// connection's thread with every snapshot, and last when the job has ended.
using EventWriter = std::function<std::string(const JobStatus&)>;

// Answers with the events of a job until it has ended; comments keep the connection alive. The
// headers are sent at once. `on_end` is called when the answer is over, also because the client is
// gone.
void stream_events(httplib::Response& response, const Job& job, EventWriter writer,
                   std::function<void()> on_end);

}  // namespace flux2::server
