// Errors as HTTP answers: which status, and the JSON that clients of OpenAI's API expect.
#pragma once

#include <flux2/error.hpp>
#include "jobs/job.hpp"

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <exception>
#include <optional>
#include <string>

namespace flux2::server {

// A field of a request that cannot be used. The message names it too.
class FieldError : public Error {
  public:
    FieldError(std::string field, const std::string& message)
        : Error(ErrorKind::bad_argument, message), field_(std::move(field)) {}
    const std::string& field() const { return field_; }

  private:
    std::string field_;
};

// An error with a status of its own, such as 404 for a picture that is gone.
class StatusError : public Error {
  public:
    StatusError(int status, std::string code, const std::string& message)
        : Error(ErrorKind::bad_argument, message), status_(status), code_(std::move(code)) {}
    int status() const { return status_; }
    const std::string& code() const { return code_; }

  private:
    int status_;
    std::string code_;
};

struct HttpError {
    int status = 500;
    std::string type;   // "invalid_request_error", "server_error", ...
    std::string code;   // a word for programs; may be empty
    std::string param;  // the field; may be empty
    std::string message;
    std::optional<int> retry_after = {};  // seconds
};

// An error whose answer is settled already, such as that of a job.
class AnswerError : public Error {
  public:
    explicit AnswerError(HttpError error)
        : Error(ErrorKind::internal, error.message), error_(std::move(error)) {}
    const HttpError& error() const { return error_; }

  private:
    HttpError error_;
};

// What an exception means for the client. Messages of the library name fields of requests in place
// of settings; they may still name files of this machine.
HttpError http_error(const std::exception& error);
// Why a job failed or was cancelled.
HttpError http_error(const JobStatus& status);
// What a status means that the HTTP library answers itself, such as 413.
HttpError http_error(int status);

// {"error": {"message", "type", "param", "code"}}
nlohmann::json openai_error(const HttpError& error);

// Sets status, body and the headers that tell clients whether to try again.
void answer_error(httplib::Response& response, const HttpError& error, const nlohmann::json& body);
void answer_json(httplib::Response& response, const nlohmann::json& body, int status = 200);
// JSON as text; bytes that are not UTF-8 are replaced.
std::string to_text(const nlohmann::json& body);

}  // namespace flux2::server
