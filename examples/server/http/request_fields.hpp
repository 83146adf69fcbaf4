// The fields of requests: a table per request type says what each may be. Values are read by it,
// from JSON or from the strings of a form, and the OpenAPI text is made from it.
#pragma once

#include "http/answer.hpp"

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flux2::server {

enum class FieldKind {
    text,      // longest length in `most`
    integer,   // `least` to `most`
    number,    // likewise
    boolean,   // true or false
    word,      // one of `words`
    seed,      // 0 to 9999999999999999999; -1: as if absent
    pictures,  // one picture or a list of them: uploads.hpp; 0 to `most`
    numbers,   // a list of numbers
    texts,     // a list of texts
    objects,   // a list of objects or of texts; the dialect reads them
};

struct Field {
    const char* name;
    FieldKind kind;
    const char* sentence;  // for the OpenAPI text
    double least = 0, most = 0;
    std::vector<const char*> words = {};
    bool required = false;
};

using FieldTable = std::vector<Field>;

// JSON in a body, with limits on its depth. Throws StatusError 400, saying where it is broken.
nlohmann::json parse_body(std::string_view text);

// The values of a request, checked by a table. Fields that the table does not name are ignored,
// and so are those that are null.
class RequestFields {
  public:
    // A JSON object. Throws FieldError, and StatusError for another type of JSON.
    static RequestFields from_json(const FieldTable& table, nlohmann::json body);
    // The texts of a form, where every value is a string.
    static RequestFields from_form(const FieldTable& table, const httplib::MultipartFormData& form);
    // The parameters of an address, likewise.
    static RequestFields from_query(const FieldTable& table, const httplib::Params& params);
    // By the request's Content-Type.
    static RequestFields read(const FieldTable& table, const httplib::Request& request);

    bool has(const char* name) const;
    std::string text(const char* name, const std::string& otherwise = "") const;
    std::optional<int> integer(const char* name) const;
    std::optional<float> number(const char* name) const;
    bool boolean(const char* name, bool otherwise = false) const;
    std::optional<uint64_t> seed(const char* name) const;
    std::vector<float> numbers(const char* name) const;
    std::vector<std::string> texts(const char* name) const;
    // As it was sent; null when it is absent.
    const nlohmann::json& value(const char* name) const;

  private:
    nlohmann::json values_ = nlohmann::json::object();
};

// The JSON schema of a table.
nlohmann::json schema_of(const FieldTable& table);

// Tables after each other.
FieldTable joined(FieldTable table, const FieldTable& more);

}  // namespace flux2::server
