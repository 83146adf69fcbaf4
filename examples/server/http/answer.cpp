#include "http/answer.hpp"

#include "base/check.hpp"
#include "base/out_of_threads.hpp"
#include "jobs/job_queue.hpp"

#include <new>

namespace flux2::server {
namespace {

using nlohmann::json;

constexpr const char* kInvalid = "invalid_request_error";
constexpr int kClientClosed = 499;  // as nginx has it

// The field of a request for a setting that messages of the library name.
std::string field_of(Setting setting) {
    switch (setting) {
        case Setting::adapters:
            return "lora";
        case Setting::init:
            return "image";
        default:
            return to_string(setting);
    }
}

HttpError error_of(ErrorKind kind, const std::string& what) {
    HttpError error;
    error.message = worded(what, field_of);
    switch (kind) {
        case ErrorKind::bad_argument:
        case ErrorKind::unsupported:
            error.status = 400;
            error.type = kInvalid;
            return error;
        case ErrorKind::out_of_memory:
            error.status = 507;
            error.code = "out_of_memory";
            break;
        case ErrorKind::out_of_disk:
            error.status = 507;
            error.code = "out_of_disk";
            break;
        case ErrorKind::cancelled:
            error.status = kClientClosed;
            error.code = "cancelled";
            break;
        case ErrorKind::bad_file:
            error.code = "bad_file";
            break;
        case ErrorKind::backend:
            error.code = "device_failed";
            break;
        case ErrorKind::internal:
            error.code = "internal_error";
            break;
    }
    error.type = "server_error";
    return error;
}

HttpError refusal(const Refused& refused) {
    const bool full = refused.reason() == Refused::Reason::queue_full;
    HttpError error;
    error.status = full ? 429 : 503;
    error.type = full ? "rate_limit_error" : "unavailable_error";
    error.code = full ? "queue_full" : "stopping";
    error.message = refused.what();
    error.retry_after = refused.retry_after_seconds();
    return error;
}

const char* sentence_of(int status) {
    switch (status) {
        case 400:
            return "this is no valid HTTP request; check its first line, its headers, and for a "
                   "form its boundary and that it is complete";
        case 404:
            return "there is no such route; /api/v1/openapi.json lists them";
        case 408:
            return "the request took too long to arrive; send it faster";
        case 413:
            return "the request is too large; send smaller pictures, or start the server with a "
                   "larger --max-body";
        case 414:
            return "the address is too long; put settings into the body";
        case 415:
            return "this encoding of the body is not supported; send it without Content-Encoding";
        case 416:
            return "this range of bytes does not exist";
        default:
            return "the server failed to answer this request";
    }
}

}  // namespace

HttpError http_error(const std::exception& error) {
    if (const auto* settled = dynamic_cast<const AnswerError*>(&error)) {
        return settled->error();
    }
    if (const auto* field = dynamic_cast<const FieldError*>(&error)) {
        HttpError found = error_of(ErrorKind::bad_argument, field->what());
        found.param = field->field();
        found.code = "invalid_value";
        return found;
    }
    if (const auto* own = dynamic_cast<const StatusError*>(&error)) {
        return {own->status(), own->status() == 404 ? "not_found_error" : kInvalid, own->code(), "",
                own->what()};
    }
    if (const auto* refused = dynamic_cast<const Refused*>(&error)) {
        return refusal(*refused);
    }
    if (const auto* ours = dynamic_cast<const Error*>(&error)) {
        return error_of(ours->kind(), ours->what());
    }
    if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
        return error_of(ErrorKind::out_of_memory,
                        "the server has not enough memory for this request; send smaller pictures");
    }
    if (is_out_of_threads(error)) {
        return error_of(ErrorKind::out_of_memory, kOutOfThreads);
    }
    return error_of(ErrorKind::internal, error.what());
}

HttpError http_error(const JobStatus& status) {
    if (status.error && status.state == JobState::failed) {
        return error_of(status.error->kind, status.error->message);
    }
    return error_of(ErrorKind::cancelled, "the request was cancelled");
}

HttpError http_error(int status) {
    const char* type = status >= 500   ? "server_error"
                       : status == 404 ? "not_found_error"
                                       : kInvalid;
    return {status, type, "", "", sentence_of(status)};
}

json openai_error(const HttpError& error) {
    const auto or_null = [](const std::string& text) { return text.empty() ? json() : json(text); };
    return {{"error",
             {{"message", error.message},
              {"type", error.type},
              {"param", or_null(error.param)},
              {"code", or_null(error.code)}}}};
}

void answer_error(httplib::Response& response, const HttpError& error, const json& body) {
    answer_json(response, body, error.status);
    if (error.retry_after) {
        response.set_header("Retry-After", std::to_string(*error.retry_after));
    }
    // Only what may succeed without a change is tried again: clients would start a picture again
    // after every 5xx.
    response.set_header("x-should-retry", error.retry_after ? "true" : "false");
}

void answer_json(httplib::Response& response, const json& body, int status) {
    response.status = status;
    response.set_content(to_text(body), "application/json");
}

std::string to_text(const json& body) {
    return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace flux2::server
